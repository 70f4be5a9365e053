//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// superuser is the name of the role that owns the cluster.
const superuser = "postgres"

// Config says where and how to run a cluster. Only Dir is required.
type Config struct {
	// Dir keeps the cluster. It is created when missing. See the package comment for the case that the server's user
	// cannot enter it.
	Dir string

	// Port is the TCP port on 127.0.0.1; 0 takes a free one, another at each start.
	Port int

	// SocketDir is where the unix socket is created; by default a folder with a path that is short enough.
	SocketDir string

	// Settings override the server's settings (see [DefaultSettings]), by name.
	Settings map[string]string

	// NoFsync gives up durability for speed: after a crash of the machine the cluster may be broken beyond repair. For
	// tests whose data nobody wants back.
	NoFsync bool

	// Trust lets everybody on this machine in without a password. For tests. It is read when the cluster is created.
	Trust bool

	// BinDir is the folder of the Postgres programs; empty looks where [Find] says.
	BinDir string

	// Install allows installing Postgres with the system's package manager when none is found; see [Install].
	Install bool

	// Log is the file that the server logs to, appended to; by default postgres.log in Dir.
	Log string

	// Progress receives lines for people about what takes time or is surprising; nil says nothing.
	Progress io.Writer
}

// DefaultSettings are the server's settings where [Config.Settings] has none.
//
//   - max_connections 200: four services with pools of up to 32 connections, several instances of some, and a person.
//   - shared_buffers 128MB: holds the hot part of every table here, and is small beside a developer's machine.
//   - max_wal_size 1GB, checkpoint_timeout 15min: a checkpoint makes the next change of each page write the whole page,
//     so fewer of them means less log per order.
//   - idle sessions are not ended, and the log has errors and what takes longer than a second.
func DefaultSettings() map[string]string {
	return map[string]string{
		"max_connections":            "200",
		"shared_buffers":             "128MB",
		"max_wal_size":               "1GB",
		"checkpoint_timeout":         "15min",
		"log_min_duration_statement": "1s",
		"log_line_prefix":            "%m [%p] %q%a@%d ",
		"log_timezone":               "UTC",
		"timezone":                   "UTC",
	}
}

// Cluster is a running Postgres server.
type Cluster struct {
	home       home
	port       int
	socketDir  string
	tempSocket bool
	password   string // of the superuser; empty with Trust
	logPath    string
	child      *child
}

// Start runs the cluster that is kept in cfg.Dir, creating it when new, and returns once it answers. Recovery after a
// crash is part of that, so ctx is the bound. Errors: [ErrNotFound], [ErrRunning], [ErrPortTaken] with the port, and the
// last lines of the server's log when it ended early. The caller calls [Cluster.Stop].
func Start(ctx context.Context, cfg Config) (_ *Cluster, err error) {
	if cfg.Dir == "" {
		return nil, errors.New("starting Postgres: no folder given")
	}
	bin, err := findOrInstall(ctx, cfg.BinDir, cfg.Install, cfg.Progress)
	if err != nil {
		return nil, err
	}
	h, err := openHome(ctx, cfg.Dir, cfg.Progress)
	if err != nil {
		return nil, fmt.Errorf("preparing the Postgres cluster: %w", err)
	}
	c := &Cluster{home: h, logPath: cfg.Log}
	if c.logPath == "" {
		c.logPath = filepath.Join(h.dir, logFile)
	}
	defer func() {
		if err != nil {
			c.release()
		}
	}()
	if !cfg.Trust {
		if c.password, err = h.password(); err != nil {
			return nil, err
		}
	}
	if err := clearLeftovers(ctx, h.data(), cfg.Progress); err != nil {
		return nil, err
	}
	if _, err := choosePort(ctx, cfg.Port); err != nil { // before the long work of making a cluster; looked at again when it is used
		return nil, err
	}
	if err := createData(ctx, bin, h, cfg, c.password); err != nil {
		return nil, err
	}
	if err := c.run(ctx, bin, cfg); err != nil {
		return nil, err
	}
	return c, nil
}

// run starts the server and waits until it answers. A free port can be taken by another between finding and using
// it, so that is tried a few times.
func (c *Cluster) run(ctx context.Context, bin Binaries, cfg Config) error {
	const tries = 5
	for try := 1; ; try++ {
		var err error
		if c.port, err = choosePort(ctx, cfg.Port); err != nil {
			return err
		}
		err = c.runOnce(ctx, bin, cfg)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if _, busy := choosePort(ctx, c.port); busy == nil || cfg.Port != 0 || try == tries {
			return err
		}
	}
}

func (c *Cluster) runOnce(ctx context.Context, bin Binaries, cfg Config) (err error) {
	if c.socketDir, c.tempSocket, err = c.home.socketDir(ctx, cfg.SocketDir, c.port); err != nil {
		return err
	}
	log, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of Postgres: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(bin.path("postgres"), c.arguments(bin.Major, cfg)...) //nolint:noctx // it outlives ctx; Stop ends it
	cmd.Dir = "/"
	cmd.Env = environment(os.Environ())
	cmd.Stderr = log
	if c.child, err = startChild(cmd, c.home.acct); err != nil {
		return fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	if err := c.waitReady(ctx); err != nil {
		c.child.signal(syscall.SIGQUIT)
		<-c.child.done
		return err
	}
	return nil
}

// allocation makes the C library keep what a server process frees, up to 16 MiB, for its next transaction. By itself it gives memory back to the
// kernel at the end of each larger transaction and takes it again page by page in the next one; where faults are expensive, as in
// nested virtual machines, that was a fifth of the server's CPU time. C libraries other than glibc ignore it.
func allocation() []string {
	return []string{"MALLOC_TRIM_THRESHOLD_=16777216", "MALLOC_MMAP_THRESHOLD_=4194304", "MALLOC_TOP_PAD_=262144"}
}

// environment is the server's: ours, which may have its own word on allocation, with what the server's output and options depend on fixed.
func environment(ours []string) []string {
	return slices.Concat(allocation(), ours, []string{"LC_ALL=C", "PGOPTIONS="})
}

// arguments returns the server's command line. Settings go there rather than into a file, so that a cluster made by an
// older release runs with the settings of this one.
func (c *Cluster) arguments(major int, cfg Config) []string {
	settings := DefaultSettings()
	if cfg.NoFsync {
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	maps.Copy(settings, cfg.Settings)
	settings["listen_addresses"] = "127.0.0.1"
	settings["port"] = strconv.Itoa(c.port)
	settings["unix_socket_directories"] = c.socketDir
	args := []string{"-D", c.home.data()}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// waitReady waits until the server lets the superuser in, or has ended, or ctx ends.
func (c *Cluster) waitReady(ctx context.Context) error {
	const poll = 20 * time.Millisecond // a start takes about 100 ms
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, c.SocketURL("postgres", superuser, c.password))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-c.child.done:
			content, _ := os.ReadFile(c.logPath) // the error below says where it is
			return fmt.Errorf("starting Postgres: it ended (%w); its log %s ends with:\n%s", c.child.err, c.logPath, tail(string(content), 8))
		case <-ctx.Done():
			return fmt.Errorf("waiting for Postgres to answer (last: %w): %w", err, ctx.Err())
		}
	}
}

// Stop shuts the server down, ending open sessions, and waits until it has written its data and ended. When ctx ends
// first it ends the server at once; the next start then recovers, and nothing that was committed is lost.
func (c *Cluster) Stop(ctx context.Context) error {
	defer c.release()
	c.child.signal(syscall.SIGINT) // Postgres calls this "fast"
	select {
	case <-c.child.done:
	case <-ctx.Done():
		c.child.signal(syscall.SIGQUIT) // and this "immediate"
		<-c.child.done
		return fmt.Errorf("stopping Postgres: %w", ctx.Err())
	}
	if c.child.err != nil {
		return fmt.Errorf("stopping Postgres: %w (see %s)", c.child.err, c.logPath)
	}
	return nil
}

// Done is closed when the server has ended, by Stop or by itself.
func (c *Cluster) Done() <-chan struct{} { return c.child.done }

// release gives the folder up.
func (c *Cluster) release() {
	if c.tempSocket {
		_ = os.RemoveAll(c.socketDir)
	}
	unlock(c.home.lock)
}

// Port returns the TCP port on 127.0.0.1.
func (c *Cluster) Port() int { return c.port }

// PID returns the process id of the server.
func (c *Cluster) PID() int { return c.child.cmd.Process.Pid }

// DataDir returns the folder with the server's data.
func (c *Cluster) DataDir() string { return c.home.data() }

// LogPath returns the file that the server logs to.
func (c *Cluster) LogPath() string { return c.logPath }

// URL returns the connection URL of a database over TCP. The password may be empty.
func (c *Cluster) URL(database, user, password string) string {
	u := url.URL{Scheme: "postgres", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)), Path: "/" + database}
	u.User = userinfo(user, password)
	u.RawQuery = "sslmode=disable"
	return u.String()
}

// SocketURL returns the connection URL of a database over the unix socket, which is faster than TCP.
func (c *Cluster) SocketURL(database, user, password string) string {
	u := url.URL{Scheme: "postgres", Path: "/" + database, User: userinfo(user, password)}
	q := url.Values{"host": {c.socketDir}, "port": {strconv.Itoa(c.port)}, "sslmode": {"disable"}}
	u.RawQuery = q.Encode()
	return u.String()
}

// Password returns the superuser's password; it is empty with [Config.Trust].
func (c *Cluster) Password() string { return c.password }

// SuperuserURL returns the connection URL of a database for the role that owns the cluster.
func (c *Cluster) SuperuserURL(database string) string { return c.URL(database, superuser, c.password) }

func userinfo(user, password string) *url.Userinfo {
	if password == "" {
		return url.User(user)
	}
	return url.UserPassword(user, password)
}

// choosePort returns the port wanted if it is free, or a free one.
func choosePort(ctx context.Context, wanted int) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(wanted)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return 0, fmt.Errorf("%w: 127.0.0.1:%d, wanted for Postgres", ErrPortTaken, wanted)
	}
	if err != nil {
		return 0, fmt.Errorf("finding a port for Postgres: %w", err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil || !ok {
		return 0, fmt.Errorf("finding a port for Postgres: %w", err)
	}
	return addr.Port, nil
}
