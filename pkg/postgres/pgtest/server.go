//go:build unix

package pgtest

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgcluster"
)

// shared is the one cluster of this process. A test binary is the one place where state of the whole process is right:
// its tests cannot hand each other a cluster, and a cluster each would cost a second each.
var shared struct {
	mu     sync.Mutex
	server *server
	err    error // sticky: where the cluster cannot start, each test says so at once
}

// sharedServer returns the cluster of this process, starting it at the first call.
func sharedServer(ctx context.Context) (*server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = connect(ctx)
	}
	return shared.server, shared.err
}

func connect(ctx context.Context) (*server, error) {
	superuserURL := os.Getenv(EnvClusterURL)
	if superuserURL == "" {
		c, err := StartCluster(ctx, os.Stderr)
		if err != nil {
			return nil, err
		}
		superuserURL = c.SuperuserURL("postgres")
	}
	u, err := url.Parse(superuserURL)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", EnvClusterURL, err)
	}
	// Creating and dropping a database waits for a checkpoint; with more at once they only wait for each other.
	admin, err := postgres.Open(ctx, postgres.Config{
		URL: superuserURL, MaxConns: 4, AppName: "pgtest", LockTimeout: -1, StatementTimeout: -1,
	})
	if err != nil {
		return nil, err
	}
	return &server{url: u, admin: admin}, nil
}

// StartCluster starts a throw-away cluster for tests: no fsync, no passwords, files under the system's temporary
// folder. Server and files go when this process ends, if [pgcluster.Cluster.Stop] was not called before. Progress
// receives lines for people when Postgres has to be installed.
func StartCluster(ctx context.Context, progress io.Writer) (*pgcluster.Cluster, error) {
	if _, err := pgcluster.Find(ctx, ""); err != nil {
		if _, err := pgcluster.Install(ctx, progress); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "throughline-pgtest-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the test cluster: %w", err)
	}
	// A root process's folder has mode 0700, and the server runs as another user; data and password files are
	// protected by their own modes.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, fmt.Errorf("opening the folder of the test cluster: %w", err)
	}
	c, err := pgcluster.Start(ctx, pgcluster.Config{
		Dir:     dir,
		NoFsync: true,
		Trust:   true,
		Settings: map[string]string{
			// Several test binaries at once, each with several tests at once, each with a pool.
			"max_connections": "500",
			"shared_buffers":  "64MB",
			// Deadlocks are found by the tests that provoke them sooner than after the default second.
			"deadlock_timeout": "200ms",
			// Never in the middle of a test but when a database is created or dropped.
			"checkpoint_timeout": "1h",
		},
	})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	if err := startReaper(c, dir); err != nil {
		_ = c.Stop(ctx)
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return c, nil
}

// reaper waits until its input ends, which is when the process that holds the other end has ended, then makes sure that
// the server ends and removes the folder. The server removes its pid file as the last thing it does; a process id would
// not tell, because in a container whose first process does not reap, a dead server keeps it. It ignores the signals
// that a terminal sends to everybody at once.
const reaper = `trap '' INT TERM HUP
read -r _
pidfile=$2/data/postmaster.pid
[ ! -e "$pidfile" ] || kill -QUIT "$1"
i=0
while [ -e "$pidfile" ] && [ "$i" -lt 100 ]; do sleep 0.05; i=$((i+1)); done
shift
rm -rf -- "$@"`

// startReaper starts the process that cleans up after this one, which a test binary gives us no moment to do.
func startReaper(c *pgcluster.Cluster, dir string) error {
	in, out, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting the reaper of the test cluster: %w", err)
	}
	defer in.Close()
	cmd := exec.Command("/bin/sh", "-c", reaper, "sh", strconv.Itoa(c.PID()), filepath.Dir(c.DataDir()), dir) //nolint:noctx // outlives us on purpose
	cmd.Stdin = in
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the reaper of the test cluster: %w", err)
	}
	reaperPipes = append(reaperPipes, out)
	return nil
}

// reaperPipes keeps the writing ends open: the garbage collector closes a file that nobody holds.
var reaperPipes []*os.File
