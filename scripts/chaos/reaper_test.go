package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/throughline/throughline/scripts/e2e/system"
)

const (
	reapEvery = 1200 * time.Millisecond
	// maxFreeze is above the time for which others wait for a sweeper that says nothing, and below the lease of a step in some cases and
	// with the time of its call above it in others.
	maxFreeze = 8 * time.Second
)

// reaper kills and freezes processes.
type reaper struct {
	s         *system.System
	r         *report
	instances int
	done      sync.WaitGroup

	mu     sync.Mutex     // guards what follows
	frozen map[string]int // process ids by instance
	killed map[string]int // the last process id that was killed, by instance
}

func startReaper(ctx context.Context, s *system.System, rng *rand.Rand, instances int, r *report) *reaper {
	p := &reaper{s: s, r: r, instances: instances, frozen: make(map[string]int), killed: make(map[string]int)}
	p.done.Go(func() { p.reap(ctx, rng) })
	return p
}

func services() []string { return []string{"gateway", "order", "payment", "shipping"} }

// reap takes service after service, in a new sequence each time, and kills or freezes one of its instances.
func (p *reaper) reap(ctx context.Context, rng *rand.Rand) {
	type deed struct {
		service string
		freeze  bool
	}
	var deeds []deed
	for _, s := range services() {
		deeds = append(deeds, deed{s, false}, deed{s, true})
	}
	tick := time.NewTicker(reapEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if i%len(deeds) == 0 {
			rng.Shuffle(len(deeds), func(a, b int) { deeds[a], deeds[b] = deeds[b], deeds[a] })
		}
		d, instance, pause := deeds[i%len(deeds)], rng.IntN(p.instances), time.Duration(rng.Int64N(int64(maxFreeze)))
		if d.freeze {
			p.freeze(ctx, d.service, instance, pause)
		} else {
			p.kill(d.service, instance)
		}
	}
}

// kill kills an instance, unless that is what happened to it last and nobody has started it again.
func (p *reaper) kill(service string, instance int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fmt.Sprintf("%s-%d", service, instance)
	pid := p.s.PID(service, instance)
	if p.killed[name] == pid || p.frozen[name] == pid {
		return
	}
	if syscall.Kill(pid, syscall.SIGKILL) == nil {
		p.killed[name] = pid
		p.r.killed(service)
	}
}

func (p *reaper) freeze(ctx context.Context, service string, instance int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fmt.Sprintf("%s-%d", service, instance)
	pid := p.s.PID(service, instance)
	if p.killed[name] == pid || p.frozen[name] != 0 || syscall.Kill(pid, syscall.SIGSTOP) != nil {
		return
	}
	p.frozen[name] = pid
	p.r.froze(service)
	p.done.Go(func() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = syscall.Kill(pid, syscall.SIGCONT) // it stands still, so it is there
		delete(p.frozen, name)
	})
}

// thaw waits until nobody is frozen any more.
func (p *reaper) thaw(t *testing.T) {
	t.Helper()
	p.done.Wait()
}
