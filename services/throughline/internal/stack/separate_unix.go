//go:build unix

package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	restartFirst = 200 * time.Millisecond
	restartMax   = 5 * time.Second
	// healthy is how long a process must have lived for its next death to count as a first one.
	healthy = 10 * time.Second
)

// supervise runs one instance as a process of its own, and starts it again whenever it dies, until stop ends.
func (s *Stack) supervise(stop, work context.Context, service string, instance int, ready func()) error {
	name := instanceName(service, instance)
	pidFile := filepath.Join(s.options.Data, "pids", name)
	logFile := filepath.Join(s.options.Data, "log", name+".log")
	for _, f := range []string{pidFile, logFile} {
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			return fmt.Errorf("starting %s: %w", name, err)
		}
	}
	defer func() { _ = os.Remove(pidFile) }() // it may not be there yet
	wait := restartFirst
	for {
		began := time.Now()
		p, err := s.spawn(service, instance, logFile)
		if err != nil {
			return fmt.Errorf("starting %s: %w", name, err)
		}
		if err := replaceFile(pidFile, strconv.Itoa(p.cmd.Process.Pid)+"\n"); err != nil {
			return errors.Join(fmt.Errorf("writing the process id of %s: %w", name, err), p.end(work))
		}
		watching, cancel := context.WithCancel(stop)
		go func() {
			if s.awaitReady(watching, service, instance) == nil {
				ready()
			}
		}()
		select {
		case <-stop.Done():
			cancel()
			return p.end(work)
		case <-p.done:
			cancel()
		}
		if time.Since(began) > healthy {
			wait = restartFirst
		}
		s.options.Logger.Warn("service died, starting it again", "service", name, "status", p.cmd.ProcessState.String(), "in", wait)
		s.say(fmt.Sprintf("%s died (%s), starting it again; its log is %s", name, p.cmd.ProcessState, logFile))
		select {
		case <-time.After(wait):
		case <-stop.Done():
			return nil
		}
		wait = min(2*wait, restartMax)
	}
}

// replaceFile writes a file so that nobody ever reads a part of it.
func replaceFile(path, text string) error {
	next := path + ".new"
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// process is a child process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// spawn starts one instance by calling this program again. The child is killed when this process dies: the kernel binds
// that to the thread that started it, so one thread stays with it until it ends.
func (s *Stack) spawn(service string, instance int, logFile string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self, "service", service), done: make(chan struct{})} //nolint:noctx // ended by signals, in two stages
	p.cmd.Env = s.childEnviron(service, instance)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = childAttributes()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer out.Close()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is in ProcessState
		}
		close(p.done)
	}()
	return p, <-started
}

// childEnviron is this process's environment without what is meant for it alone, and the instance's own.
func (s *Stack) childEnviron(service string, instance int) []string {
	own := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "THROUGHLINE_") || strings.HasPrefix(v, "OTEL_") || strings.Contains(v, "DATABASE_URL=") || strings.HasPrefix(v, "NATS_URL=")
	})
	return append(append(own, s.options.Environ...), s.options.environ(s.needs, service, instance)...)
}

// end asks the process to stop, and kills it when work ends before it has.
func (p *process) end(work context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping process %d: %w", p.cmd.Process.Pid, err)
	}
	select {
	case <-p.done:
	case <-work.Done():
		_ = p.cmd.Process.Kill() // it may have ended meanwhile
		<-p.done
	}
	return nil
}
