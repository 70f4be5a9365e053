package crash_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one service, which is started again whenever it dies.
type process struct {
	w       *world
	service string
	environ []string
	wires   string // the folder of its trips

	mu     sync.Mutex // guards what follows
	cmd    *exec.Cmd
	killed int // times that it has died by SIGKILL
	stop   bool
	ended  chan struct{}
}

// keep starts a service and keeps it running until the end of the test.
func (w *world) keep(service string, environ ...string) {
	w.t.Helper()
	p := &process{w: w, service: service, wires: filepath.Join(w.dir, service), ended: make(chan struct{})}
	if err := os.MkdirAll(p.wires, 0o755); err != nil {
		w.t.Fatal(err)
	}
	p.environ = []string{
		"THROUGHLINE_INSTANCE=" + service, "THROUGHLINE_SERVICE_CREDENTIAL=crash", "THROUGHLINE_LOG_FORMAT=text",
		"THROUGHLINE_FAULT_POINTS=*=trip:" + p.wires, "HOME=" + os.Getenv("HOME"), "PATH=" + os.Getenv("PATH"),
	}
	p.environ = append(p.environ, environ...)
	if err := p.start(); err != nil {
		w.t.Fatalf("starting %s: %v", service, err)
	}
	w.processes[service] = p
	go p.supervise()
	w.t.Cleanup(p.end)
}

func (p *process) start() error {
	log, err := os.OpenFile(filepath.Join(p.w.dir, p.service+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd = exec.Command(p.w.binary, "service", p.service)
	p.cmd.Env = p.environ
	p.cmd.Stdout, p.cmd.Stderr = log, log
	return p.cmd.Start()
}

// supervise starts the service again, at once. Any end but by a trip is a failure, and the end of the test.
func (p *process) supervise() {
	defer close(p.ended)
	for {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		p.mu.Lock()
		stop := p.stop
		status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		if status.Signaled() && status.Signal() == syscall.SIGKILL {
			p.killed++
		} else if !stop {
			p.w.t.Errorf("%s ended by itself: %v", p.service, p.cmd.ProcessState)
			p.w.giveUp()
			stop = true
		}
		p.mu.Unlock()
		if stop {
			return
		}
		p.w.buryLeases(p.service)
		if err := p.start(); err != nil {
			p.w.t.Errorf("starting %s again: %v", p.service, err)
			return
		}
	}
}

// deaths tells how often the service has died by SIGKILL.
func (p *process) deaths() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

func (p *process) end() {
	p.mu.Lock()
	p.stop = true
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended meanwhile
	p.mu.Unlock()
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
		p.w.t.Errorf("%s did not stop", p.service)
	}
	if !p.w.t.Failed() {
		return
	}
	if text, err := os.ReadFile(filepath.Join(p.w.dir, p.service+".log")); err == nil {
		const most = 20 << 10
		p.w.t.Logf("end of the log of %s:\n%s", p.service, text[max(0, len(text)-most):])
	}
}

// buryLeases ends the leases of a process that is dead. They would end by themselves within three seconds.
func (w *world) buryLeases(service string) {
	db := w.databases[service]
	if db == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := db.Exec(ctx, `UPDATE lease SET until = clock_timestamp()`); err != nil && !strings.Contains(err.Error(), "42P01") {
		w.t.Errorf("ending the leases of %s: %v", service, err)
	}
}
