//go:build unix

package pgcluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/throughline/throughline/pkg/postgres/pgcluster"
)

// helperEnv makes a test binary run a cluster in the folder that it names, until it is killed.
const helperEnv = "PGCLUSTER_TEST_HELPER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		c, err := pgcluster.Start(context.Background(), config(dir))
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("running", c.PID())
		select {}
	}
	os.Exit(m.Run())
}

// config is for a small cluster. It has fsync, since some tests kill it.
func config(dir string) pgcluster.Config {
	return pgcluster.Config{Dir: dir, Settings: map[string]string{"shared_buffers": "16MB"}}
}

// tempDir returns a folder that every user can enter.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgcluster-test-")
	if err != nil {
		t.Fatalf("making a folder: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(pgcluster.Remove(context.Background(), dir), os.RemoveAll(dir)); err != nil {
			t.Errorf("removing the folder: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatalf("opening the folder: %v", err)
	}
	return dir
}

func start(t *testing.T, cfg pgcluster.Config) *pgcluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgcluster.Start(ctx, cfg)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		select {
		case <-c.Done():
		default:
			stop(t, c)
		}
	})
	return c
}

func stop(t *testing.T, c *pgcluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatalf("connecting to %s: %v", url, err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	var got string
	if err := conn.QueryRow(context.Background(), sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

func TestStartStopStartKeepsData(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	c := start(t, config(dir))
	exec1(t, connect(t, c.SuperuserURL("postgres")), `WITH x AS (SELECT set_config('a.b', 'c', false)) SELECT 'ok' FROM x`)
	if _, err := connect(t, c.SuperuserURL("postgres")).Exec(t.Context(), `CREATE TABLE kept AS SELECT 'kept' AS v`); err != nil {
		t.Fatalf("creating: %v", err)
	}
	stop(t, c)
	if _, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port()))); err == nil {
		t.Error("the port still answers after Stop")
	}
	c = start(t, config(dir))
	if got := exec1(t, connect(t, c.SuperuserURL("postgres")), `SELECT v FROM kept`); got != "kept" {
		t.Errorf("data after a restart: got %q, want %q", got, "kept")
	}
	if got := exec1(t, connect(t, c.SuperuserURL("postgres")), `SHOW listen_addresses`); got != "127.0.0.1" {
		t.Errorf("listen_addresses: got %q, want 127.0.0.1", got)
	}
}

func TestServerDoesNotRunAsRoot(t *testing.T) {
	t.Parallel()
	c := start(t, config(tempDir(t)))
	// Postgres demands that its user owns the data.
	fi, err := os.Stat(c.DataDir())
	if err != nil {
		t.Fatalf("looking at the data: %v", err)
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || st.Uid == 0 {
		t.Errorf("owner of the data: got %+v, want a user other than root", fi.Sys())
	}
}

func TestPasswordsAreNeeded(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	c := start(t, config(dir))
	for _, url := range []string{c.URL("postgres", "postgres", "wrong"), c.SocketURL("postgres", "postgres", "wrong")} {
		_, err := pgx.Connect(t.Context(), url)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "28P01" {
			t.Errorf("connecting with a wrong password: got %v, want 28P01", err)
		}
	}
	fi, err := os.Stat(filepath.Join(dir, "postgres.password"))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("password file: got %v, %v; want mode 0600", fi, err)
	}
}

func TestCreateDatabase(t *testing.T) {
	t.Parallel()
	c := start(t, config(tempDir(t)))
	created := make(chan error)
	for _, name := range []string{"order", "payment", "order"} { // twice, and all at once
		go func() { created <- c.CreateDatabase(t.Context(), name, name, "it's "+name) }()
	}
	for range 3 {
		if err := <-created; err != nil {
			t.Fatalf("CreateDatabase: %v", err)
		}
	}
	for _, url := range []string{c.URL("order", "order", "it's order"), c.SocketURL("payment", "payment", "it's payment")} {
		if _, err := connect(t, url).Exec(t.Context(), `CREATE TABLE mine ()`); err != nil {
			t.Errorf("creating a table in the own database: %v", err)
		}
	}
	for _, database := range []string{"payment", "postgres", "template1"} {
		_, err := pgx.Connect(t.Context(), c.URL(database, "order", "it's order"))
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "42501" {
			t.Errorf("role order connecting to database %s: got %v, want 42501", database, err)
		}
	}
	if err := c.CreateDatabase(t.Context(), "order", "order", "changed"); err != nil {
		t.Fatalf("CreateDatabase with another password: %v", err)
	}
	connect(t, c.URL("order", "order", "changed"))
}

func TestSecondStartIsRefused(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	c := start(t, config(dir))
	_, err := pgcluster.Start(t.Context(), config(dir))
	if !errors.Is(err, pgcluster.ErrRunning) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("second Start: got %v, want %v and the process id", err, pgcluster.ErrRunning)
	}
	connect(t, c.SuperuserURL("postgres")) // the first is unharmed
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	defer l.Close()
	cfg := config(tempDir(t))
	cfg.Port = l.Addr().(*net.TCPAddr).Port
	_, err = pgcluster.Start(t.Context(), cfg)
	if !errors.Is(err, pgcluster.ErrPortTaken) || !strings.Contains(err.Error(), strconv.Itoa(cfg.Port)) {
		t.Errorf("Start: got %v, want %v with port %d", err, pgcluster.ErrPortTaken, cfg.Port)
	}
	data := filepath.Join(cfg.Dir, "data")
	if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) { // nobody waits for a cluster to be made to hear of it
		t.Errorf("data after the failure: got %v, want none", err)
	}
	if err := l.Close(); err != nil {
		t.Fatalf("closing: %v", err)
	}
	if got := start(t, cfg).Port(); got != cfg.Port { // the failure has left nothing in the way
		t.Errorf("port: got %d, want %d", got, cfg.Port)
	}
	if _, err := os.Stat(data); err != nil {
		t.Errorf("data after a start: %v", err)
	}
}

func TestWrongSettingIsExplained(t *testing.T) {
	t.Parallel()
	cfg := config(tempDir(t))
	cfg.Settings["shared_buffers"] = "much"
	_, err := pgcluster.Start(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers"`) {
		t.Errorf("Start: got %v, want what the server says", err)
	}
}

// A long path would not fit into the address of a unix socket.
func TestLongPath(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	c := start(t, config(filepath.Join(dir, strings.Repeat("long", 30))))
	connect(t, c.SocketURL("postgres", "postgres", c.Password()))
}

// A clone in a folder that only root may enter.
func TestFolderThatTheServerCannotEnter(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatalf("closing the folder: %v", err)
	}
	var progress strings.Builder
	cfg := config(dir)
	cfg.Progress = &progress
	c := start(t, cfg)
	if _, err := connect(t, c.SuperuserURL("postgres")).Exec(t.Context(), `CREATE TABLE kept AS SELECT 'kept' AS v`); err != nil {
		t.Fatalf("creating: %v", err)
	}
	elsewhere := os.Geteuid() == 0 // any other user runs the server as itself, and can enter what it can
	if strings.Contains(progress.String(), "cannot enter "+dir) != elsewhere {
		t.Errorf("progress: got %q, want it to say where the data is: %v", progress.String(), elsewhere)
	}
	stop(t, c)
	again := start(t, cfg)
	if got, want := again.DataDir(), c.DataDir(); got != want || strings.HasPrefix(got, dir) == elsewhere {
		t.Errorf("data folder at the second start: got %s, want %s", got, want)
	}
	if got := exec1(t, connect(t, again.SuperuserURL("postgres")), `SELECT v FROM kept`); got != "kept" {
		t.Errorf("data after a restart: got %q, want %q", got, "kept")
	}
}

// helper starts a process that runs a cluster in dir, and returns it with the server's process id.
func helper(t *testing.T, dir string) (*exec.Cmd, int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("pipe: %v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting helper: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, convErr := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "running ")))
	if err != nil || convErr != nil {
		t.Fatalf("helper said %q, %v", line, err)
	}
	return cmd, pid
}

// Whoever is killed, nothing that was committed is lost and the next start needs no help.
func TestStartAfterKill(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		kill func(t *testing.T, parent *os.Process, server int)
	}{
		{"parent", func(t *testing.T, parent *os.Process, _ int) { kill(t, parent) }},
		{"server, then parent", func(t *testing.T, parent *os.Process, server int) {
			p, err := os.FindProcess(server)
			if err != nil {
				t.Fatalf("finding server: %v", err)
			}
			kill(t, p)
			kill(t, parent)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			cmd, pid := helper(t, dir)
			password, err := os.ReadFile(filepath.Join(dir, "postgres.password"))
			if err != nil {
				t.Fatalf("reading password: %v", err)
			}
			port := portOf(t, dir)
			conn := connect(t, fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%s/postgres", strings.TrimSpace(string(password)), port))
			if _, err := conn.Exec(t.Context(), `CREATE TABLE kept AS SELECT 'kept' AS v`); err != nil {
				t.Fatalf("creating: %v", err)
			}
			c.kill(t, cmd.Process, pid)
			_ = cmd.Wait()
			again := start(t, config(dir))
			if got := exec1(t, connect(t, again.SuperuserURL("postgres")), `SELECT v FROM kept`); got != "kept" {
				t.Errorf("data after the kill: got %q, want %q", got, "kept")
			}
		})
	}
}

func kill(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatalf("killing: %v", err)
	}
}

// portOf reads the port of a running server from its pid file.
func portOf(t *testing.T, dir string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatalf("reading pid file: %v", err)
	}
	return strings.Split(string(content), "\n")[3]
}

// A restart of the machine gives the process id in a left-over pid file to another program.
func TestStalePidFile(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	c := start(t, config(dir))
	stop(t, c)
	for name, content := range map[string]string{
		"another program": fmt.Sprintf("%d\n%s\n", os.Getpid(), c.DataDir()),
		"no process":      fmt.Sprintf("%d\n%s\n", c.PID(), c.DataDir()),
		"empty":           "",
	} {
		if err := os.WriteFile(filepath.Join(c.DataDir(), "postmaster.pid"), []byte(content), 0o600); err != nil {
			t.Fatalf("writing: %v", err)
		}
		again, err := pgcluster.Start(t.Context(), config(dir))
		if err != nil {
			t.Errorf("Start with the pid file of %s: %v", name, err)
			continue
		}
		stop(t, again)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	for _, mode := range []os.FileMode{0o755, 0o700} {
		dir := tempDir(t)
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatalf("changing the folder: %v", err)
		}
		c := start(t, config(dir))
		if err := pgcluster.Remove(t.Context(), dir); !errors.Is(err, pgcluster.ErrRunning) {
			t.Errorf("Remove of a running cluster: got %v, want %v", err, pgcluster.ErrRunning)
		}
		stop(t, c)
		if err := pgcluster.Remove(t.Context(), dir); err != nil {
			t.Errorf("Remove: %v", err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left in the folder: got %v, %v; want nothing", left, err)
		}
		if _, err := os.Stat(filepath.Dir(c.DataDir())); filepath.Dir(c.DataDir()) != dir && err == nil {
			t.Errorf("%s is still there", c.DataDir())
		}
	}
}
