//go:build unix

package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// createData creates the data folder unless it exists. It is made beside its place and then renamed: a folder that is
// there is complete, also after a crash in the middle.
func createData(ctx context.Context, bin Binaries, h home, cfg Config, password string) error {
	version, err := os.ReadFile(filepath.Join(h.data(), "PG_VERSION"))
	if err == nil {
		if v := strings.TrimSpace(string(version)); v != strconv.Itoa(bin.Major) {
			return fmt.Errorf("the data in %s was written by Postgres %s, but the programs in %s are version %d: set the folder of version %s, "+
				"or move the data away", h.data(), v, bin.Dir, bin.Major, v)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for the data of Postgres: %w", err)
	}
	say(cfg.Progress, "creating a Postgres %d cluster in %s", bin.Major, h.base)
	unfinished := h.data() + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("removing an unfinished cluster: %w", err)
	}
	if err := h.acct.makeDir(unfinished); err != nil {
		return err
	}
	if err := initdb(ctx, bin, h, cfg, unfinished, password); err != nil {
		return err
	}
	if err := os.Rename(unfinished, h.data()); err != nil {
		return fmt.Errorf("putting the new cluster in place: %w", err)
	}
	return nil
}

func initdb(ctx context.Context, bin Binaries, h home, cfg Config, dir, password string) error {
	args := []string{"-D", dir, "-U", superuser, "--encoding=UTF8", "--locale=C", "--no-instructions"}
	if cfg.NoFsync {
		args = append(args, "--no-sync")
	}
	if cfg.Trust {
		args = append(args, "--auth=trust")
	} else {
		// A file, since the command line of a process can be read by everybody on the machine. It lies in the data
		// folder's parent only while initdb runs, because the server's user must read it.
		pw := dir + ".password"
		if err := os.WriteFile(pw, []byte(password+"\n"), 0o600); err != nil {
			return fmt.Errorf("handing initdb the password: %w", err)
		}
		defer os.Remove(pw) //nolint:errcheck // a leftover is overwritten by the next try, and has mode 0600
		if err := h.acct.own(pw); err != nil {
			return err
		}
		args = append(args, "--auth=scram-sha-256", "--pwfile="+pw)
	}
	cmd := exec.CommandContext(ctx, bin.path("initdb"), args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: h.acct.cred, Setpgid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("creating the cluster with %s: %w\n%s", cmd.Path, err, tail(string(out), 8))
	}
	return nil
}
