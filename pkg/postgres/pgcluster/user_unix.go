//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is the system user that the server runs as. The zero value is the user of this process.
type account struct {
	name string
	cred *syscall.Credential // nil: run as we are
}

// serverAccount chooses the user for the server. Postgres refuses to run as root, so a root process needs another: the
// owner of the data that exists already, because Postgres demands that it owns them, else the first that exists of
// those that packages create for Postgres, else nobody.
func serverAccount(existingData string) (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	if fi, err := os.Stat(existingData); err == nil {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			u, err := user.LookupId(strconv.FormatUint(uint64(st.Uid), 10))
			if err != nil {
				return account{}, fmt.Errorf("looking up the owner of %s: %w", existingData, err)
			}
			return accountOf(u)
		}
	}
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil && u.Uid != "0" {
			return accountOf(u)
		}
	}
	return account{}, errors.New("choosing a user for Postgres, which does not run as root: none of postgres, _postgres, nobody exists")
}

func accountOf(u *user.User) (account, error) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("reading the user id of %s: %w", u.Username, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("reading the group id of %s: %w", u.Username, err)
	}
	// The supplementary groups too: on Debian the key files that Postgres may use belong to group ssl-cert.
	ids, err := u.GroupIds()
	if err != nil {
		return account{}, fmt.Errorf("reading the groups of %s: %w", u.Username, err)
	}
	groups := make([]uint32, 0, len(ids))
	for _, id := range ids {
		g, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("reading the groups of %s: %w", u.Username, err)
		}
		groups = append(groups, uint32(g))
	}
	return account{name: u.Username, cred: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: groups}}, nil
}

// own gives a file or folder to the account.
func (a account) own(path string) error {
	if a.cred == nil {
		return nil
	}
	if err := os.Chown(path, int(a.cred.Uid), int(a.cred.Gid)); err != nil {
		return fmt.Errorf("giving %s to user %s: %w", path, a.name, err)
	}
	return nil
}

// canEnter reports whether the account can reach dir. It asks the kernel, by trying as that user: mode bits of each
// parent are not the whole truth where access lists exist.
func (a account) canEnter(ctx context.Context, dir string) bool {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `cd -- "$1"`, "sh", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.cred}
	return cmd.Run() == nil
}

// makeDir creates dir with mode 0700 for the account; it may exist already.
func (a account) makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating %s: %w", dir, err)
	}
	return a.own(dir)
}
