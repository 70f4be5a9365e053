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

// reap takes service after service, in a new sequence each time, and kills or freezes one of its instances. What can not be done now, since the
// instances are dead or stand still, is done at the next turn.
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
	for i := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if i%len(deeds) == 0 {
			rng.Shuffle(len(deeds), func(a, b int) { deeds[a], deeds[b] = deeds[b], deeds[a] })
		}
		d, first, pause := deeds[i%len(deeds)], rng.IntN(p.instances), time.Duration(rng.Int64N(int64(maxFreeze)))
		done := false
		for n := 0; n < p.instances && !done; n++ {
			instance := (first + n) % p.instances
			if d.freeze {
				done = p.freeze(ctx, d.service, instance, pause)
			} else {
				done = p.kill(d.service, instance)
			}
		}
		if done {
			i++
		}
	}
}

// kill kills an instance, unless it stands still, or that is what happened to it last and nobody has started it again.
func (p *reaper) kill(service string, instance int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fmt.Sprintf("%s-%d", service, instance)
	pid := p.s.PID(service, instance)
	if p.killed[name] == pid || p.frozen[name] == pid || syscall.Kill(pid, syscall.SIGKILL) != nil {
		return false
	}
	p.killed[name] = pid
	p.r.killed(service)
	return true
}

func (p *reaper) freeze(ctx context.Context, service string, instance int, pause time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fmt.Sprintf("%s-%d", service, instance)
	pid := p.s.PID(service, instance)
	if p.killed[name] == pid || p.frozen[name] != 0 || syscall.Kill(pid, syscall.SIGSTOP) != nil {
		return false
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
	return true
}

// thaw waits until nobody is frozen any more.
func (p *reaper) thaw(t *testing.T) {
	t.Helper()
	p.done.Wait()
}
