//go:build unix

package pgcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Names of files in the folder given as [Config.Dir].
const (
	lockFile     = "postgres.lock"     // held by the process that runs the cluster
	locationFile = "location"          // where the data is, when it cannot be in this folder
	passwordFile = "postgres.password" // of the superuser
	logFile      = "postgres.log"      // of the server
)

// maxSocketPath bounds the path of the unix socket. The kernel's limit is 104 bytes on some systems and 108 on
// others, with the final zero.
const maxSocketPath = 100

// home is a locked folder, and where the cluster that belongs to it keeps its files.
type home struct {
	dir  string   // as configured
	base string   // holds data and socket; dir itself, or a folder under the system's temporary folder
	lock *os.File // open while the cluster runs
	acct account
}

func (h home) data() string { return filepath.Join(h.base, "data") }

// openHome creates and locks dir and finds where its cluster is, or is to be.
func openHome(ctx context.Context, dir string, progress io.Writer) (h home, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return home{}, fmt.Errorf("resolving %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return home{}, fmt.Errorf("creating %s: %w", dir, err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return home{}, err
	}
	defer func() {
		if err != nil {
			unlock(lock)
		}
	}()
	h = home{dir: dir, base: dir, lock: lock}
	if h.acct, err = serverAccount(h.data()); err != nil {
		return home{}, err
	}
	if h.acct.canEnter(ctx, dir) {
		return h, nil
	}
	return h.elsewhere(ctx, progress)
}

// lockDir takes the lock that lasts as long as this process, however it ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of %s: %w", dir, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		if err := f.Truncate(0); err == nil {
			_, _ = fmt.Fprintln(f, os.Getpid()) // for the message of the process that comes second
		}
		return f, nil
	}
	holder, _ := io.ReadAll(f) // without it the message says less
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: process %s holds %s", ErrRunning, strings.TrimSpace(string(holder)), dir)
	}
	return nil, fmt.Errorf("locking %s: %w", dir, err)
}

// elsewhere places the cluster under the system's temporary folder, or finds the place recorded by an earlier start.
func (h home) elsewhere(ctx context.Context, progress io.Writer) (home, error) {
	record := filepath.Join(h.dir, locationFile)
	recorded, err := os.ReadFile(record)
	switch {
	case err == nil:
		h.base = strings.TrimSpace(string(recorded))
		if h.reusable() {
			return h, nil
		}
		say(progress, "the database's folder %s is gone, so its data is lost; starting with an empty one", h.base)
	case !errors.Is(err, fs.ErrNotExist):
		return home{}, fmt.Errorf("reading where the cluster is: %w", err)
	}
	if h.base, err = h.acct.makeTemp(ctx, "throughline-postgres-"); err != nil {
		return home{}, err
	}
	if err := os.WriteFile(record, []byte(h.base+"\n"), 0o600); err != nil {
		return home{}, fmt.Errorf("recording where the cluster is: %w", err)
	}
	say(progress, "user %s cannot enter %s, so the database's files are in %s", h.acct.name, h.dir, h.base)
	return h, nil
}

// Remove deletes the cluster that is kept in dir, wherever its data is, and the files about it, but not dir itself. It
// returns [ErrRunning] while a process holds the cluster.
func Remove(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("resolving %s: %w", dir, err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return fmt.Errorf("removing the Postgres cluster: %w", err)
	}
	defer unlock(lock)
	h := home{dir: dir, base: dir}
	doomed := []string{h.data(), h.data() + ".new", filepath.Join(dir, "socket")}
	if recorded, err := os.ReadFile(filepath.Join(dir, locationFile)); err == nil {
		h.base = strings.TrimSpace(string(recorded))
		if h.acct, err = serverAccount(h.data()); err != nil {
			return fmt.Errorf("removing the Postgres cluster: %w", err)
		}
		if h.reusable() { // else it is not ours to remove
			doomed = append(doomed, h.base)
		}
	}
	if err := clearLeftovers(ctx, h.data(), nil); err != nil {
		return fmt.Errorf("removing the Postgres cluster: %w", err)
	}
	for _, name := range []string{locationFile, passwordFile, logFile, lockFile} {
		doomed = append(doomed, filepath.Join(dir, name))
	}
	for _, path := range doomed {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("removing the Postgres cluster: %w", err)
		}
	}
	return nil
}

// reusable reports whether the recorded place is a folder of our account: anybody may create a folder of that name
// under the temporary folder once it has been cleared.
func (h home) reusable() bool {
	fi, err := os.Lstat(h.base)
	if err != nil || !fi.IsDir() {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && h.acct.cred != nil && st.Uid == h.acct.cred.Uid
}

// makeTemp creates a folder for the account in the first temporary folder that the account can enter: TMPDIR of a root
// process may be private to root.
func (a account) makeTemp(ctx context.Context, prefix string) (string, error) {
	for _, parent := range []string{os.TempDir(), "/var/tmp", "/tmp"} {
		if !a.canEnter(ctx, parent) {
			continue
		}
		dir, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			continue
		}
		return dir, a.own(dir)
	}
	return "", fmt.Errorf("no temporary folder that user %s can enter", a.name)
}

// socketDir returns where the unix socket goes, and whether that is a folder to remove at the end.
func (h home) socketDir(ctx context.Context, configured string, port int) (dir string, temporary bool, err error) {
	fits := func(dir string) bool { return len(dir)+len(fmt.Sprintf("/.s.PGSQL.%d", port)) <= maxSocketPath }
	if configured != "" {
		if dir, err = filepath.Abs(configured); err != nil {
			return "", false, fmt.Errorf("resolving %s: %w", configured, err)
		}
		if !fits(dir) {
			return "", false, fmt.Errorf("the path of the socket folder %s is too long: the socket's path may have %d bytes", dir, maxSocketPath)
		}
		return dir, false, h.acct.makeDir(dir)
	}
	if dir = filepath.Join(h.base, "socket"); fits(dir) {
		return dir, false, h.acct.makeDir(dir)
	}
	if dir, err = h.acct.makeTemp(ctx, "tl-pg-"); err != nil {
		return "", false, err
	}
	return dir, true, nil
}

// password returns the superuser's password, generated at the first call.
func (h home) password() (string, error) {
	path := filepath.Join(h.dir, passwordFile)
	b, err := os.ReadFile(path)
	if err == nil && len(b) > 0 {
		return strings.TrimSpace(string(b)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the superuser's password: %w", err)
	}
	password := rand.Text()
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keeping the superuser's password: %w", err)
	}
	return password, nil
}

// unlock gives the folder free. Closing alone would not: a child process that is being started at this very moment holds the
// open file, too, until it runs its own program.
func unlock(lock *os.File) {
	_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_UN) // it fails only for a file that is closed
	_ = lock.Close()
}
