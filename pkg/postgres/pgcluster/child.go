//go:build unix

package pgcluster

import (
	"os/exec"
	"runtime"
	"syscall"
)

// child is the running server process.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process has been reaped
	err  error         // of Wait; read after done
}

// startChild starts cmd in a process group of its own, so that a Ctrl-C at the terminal reaches us and not it: the
// order of stopping is ours.
//
// The kernel ties a child to the thread that forked it, not to the process: were that thread to end while the process
// lives, the child would be signalled. So one goroutine keeps its thread locked from the start until the child has
// ended.
func startChild(cmd *exec.Cmd, a account) (*child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.cred, Setpgid: true}
	// SIGQUIT is Postgres's immediate shutdown: nothing is left running within milliseconds, and the next start
	// recovers from the write-ahead log.
	tieToParent(cmd.SysProcAttr, syscall.SIGQUIT)
	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, <-started
}

// signal sends sig, unless the process has been reaped.
func (c *child) signal(sig syscall.Signal) {
	_ = c.cmd.Process.Signal(sig) // the only failure is that it has ended
}
