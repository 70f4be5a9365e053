//go:build unix

package pgcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clearLeftovers makes sure that no server of an earlier process uses the data folder. The caller holds the folder's
// lock, so a server that still runs has lost its parent: it is told to stop, and waited for. A pid file whose process is
// another program is removed: after a restart of a machine or a container small process ids come again, and Postgres
// itself would then refuse to start.
func clearLeftovers(ctx context.Context, data string, progress io.Writer) error {
	path := filepath.Join(data, "postmaster.pid")
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the pid file of an earlier server: %w", err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid <= 0 || !isServerOf(ctx, pid, data) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the pid file of an earlier server: %w", err)
		}
		return nil
	}
	say(progress, "stopping the Postgres server that an earlier run left behind (process %d)", pid)
	return stopOrphan(ctx, pid, data)
}

// stopOrphan shuts a server down that is not our child: fast at first, immediately when that takes long.
func stopOrphan(ctx context.Context, pid int, data string) error {
	const (
		patience = 10 * time.Second // a fast shutdown writes a checkpoint; then the immediate one, which recovers at the next start
		poll     = 20 * time.Millisecond
	)
	_ = syscall.Kill(pid, syscall.SIGINT) // the only failure that matters is seen below: it still runs
	escalate := time.NewTimer(patience)
	defer escalate.Stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for isServerOf(ctx, pid, data) {
		select {
		case <-tick.C:
		case <-escalate.C:
			_ = syscall.Kill(pid, syscall.SIGQUIT)
		case <-ctx.Done():
			return fmt.Errorf("waiting for the Postgres server that an earlier run left behind (process %d): %w", pid, ctx.Err())
		}
	}
	return nil
}

// isServerOf reports whether pid is a Postgres server with this data folder.
func isServerOf(ctx context.Context, pid int, data string) bool {
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return false
	}
	var command []byte
	var err error
	if runtime.GOOS == "linux" {
		command, err = os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		command = bytes.ReplaceAll(command, []byte{0}, []byte{' '})
	} else {
		command, err = exec.CommandContext(ctx, "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	}
	// A zombie has an empty command line: it uses nothing any more.
	return err == nil && bytes.Contains(command, []byte(" -D "+data+" "))
}
