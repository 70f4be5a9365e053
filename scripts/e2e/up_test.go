package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// TestUpAgain stops the system in the middle of orders, and starts it again on the same data.
func TestUpAgain(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			data := system.DataDir(t)
			first := system.Start(t, system.Options{Data: data})
			ctx := system.Context(t, 3*time.Minute)
			slow(ctx, t, first)
			var ids []string
			for i := range 10 {
				a, err := first.Storefront().Place(ctx, fmt.Sprintf("again-%d", i), system.Order{})
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, a.Order.ID)
			}
			status := first.StopWith(sig)
			if sig != syscall.SIGKILL && status != 0 {
				t.Errorf("exit status after %s: got %d, want 0:\n%s", sig, status, first.Output())
			}
			second := system.Start(t, system.Options{Data: data, Ports: first.Ports()})
			for _, id := range ids {
				if last := awaitRest(ctx, t, second.Storefront(), id); last.Order.Status != verify.Confirmed {
					t.Errorf("order %s: got %s, want CONFIRMED", id, last.Order.Status)
				}
			}
			second.Check(ctx)
		})
	}
}

// TestUpTwice starts a second system beside a running one.
func TestUpTwice(t *testing.T) {
	t.Parallel()
	first := system.Start(t, system.Options{})
	ctx := system.Context(t, time.Minute)

	same := system.Launch(t, system.Options{Data: first.Data(), Ports: first.Ports()})
	if status := same.Wait(ctx); status == 0 {
		t.Error("second start with the same data: exit status 0, want an error")
	}
	if out := same.Output(); !strings.Contains(out, "already running") {
		t.Errorf("second start with the same data: got %q, want it to say that it is already running", out)
	}

	ports := system.FreePorts(t, 1)
	ports["http"] = first.Ports()["http"]
	other := system.Launch(t, system.Options{Ports: ports})
	if status := other.Wait(ctx); status == 0 {
		t.Error("start with a port that is taken: exit status 0, want an error")
	}
	if out, want := other.Output(), fmt.Sprintf(":%d", ports["http"]); !strings.Contains(out, want) {
		t.Errorf("start with a port that is taken: got %q, want it to name %s", out, want)
	}
}

// TestUpPortsTaken names each port that is taken.
func TestUpPortsTaken(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"postgres", "nats", "provider", "carrier", "order-grpc", "payment-http", "grpc"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			ports := system.FreePorts(t, 1)
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports[flag]))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			s := system.Launch(t, system.Options{Ports: ports})
			if status := s.Wait(system.Context(t, time.Minute)); status == 0 {
				t.Error("exit status 0, want an error")
			}
			if out, want := s.Output(), fmt.Sprintf("%d", ports[flag]); !strings.Contains(out, want) {
				t.Errorf("got %q, want it to name port %s", out, want)
			}
		})
	}
}

// TestUpInRootsFolder runs the system from a folder that only its owner may enter.
func TestUpInRootsFolder(t *testing.T) {
	t.Parallel()
	dir := system.DataDir(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := system.Start(t, system.Options{Data: filepath.Join(dir, "run")})
	ctx := system.Context(t, time.Minute)
	a, err := s.Storefront().Place(ctx, "k", system.Order{})
	if err != nil {
		t.Fatal(err)
	}
	if last := awaitRest(ctx, t, s.Storefront(), a.Order.ID); last.Order.Status != verify.Confirmed {
		t.Errorf("order: got %s, want CONFIRMED", last.Order.Status)
	}
}

// TestUpBannersCurl does what the command does that the banner prints.
func TestUpBannersCurl(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{})
	ctx := system.Context(t, time.Minute)
	command := regexp.MustCompile(`(?s)curl -i (\S+) .*? -d '([^']*)'`).FindStringSubmatch(s.Output())
	if command == nil {
		t.Fatalf("no curl command in the banner:\n%s", s.Output())
	}
	headers := regexp.MustCompile(`-H '([^:']+): ([^']*)'`).FindAllStringSubmatch(command[0], -1)
	for i, wantReplayed := range []string{"", "true"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, command[1], strings.NewReader(command[2]))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range headers {
			req.Header.Set(h[1], h[2])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.Header.Get("Idempotency-Replayed"); resp.StatusCode != http.StatusCreated || got != wantReplayed {
			t.Errorf("run %d of the banner's command: got %d, Idempotency-Replayed %q; want 201, %q", i+1, resp.StatusCode, got, wantReplayed)
		}
	}
	if !strings.Contains(s.Output(), "for development only") {
		t.Errorf("the banner does not say that its clients are for development:\n%s", s.Output())
	}
}

// TestUpSeparateLeavesNothing looks for what a stop has left behind.
func TestUpSeparateLeavesNothing(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{Separate: true, Instances: 2})
	var pids []int
	for _, service := range []string{"gateway", "order", "payment", "shipping"} {
		for i := range 2 {
			pids = append(pids, s.PID(service, i))
		}
	}
	if status := s.Stop(); status != 0 {
		t.Errorf("exit status: got %d, want 0:\n%s", status, s.Output())
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d is still there after the stop", pid)
		}
	}
	for name, port := range s.Ports() {
		if answers(fmt.Sprintf("http://127.0.0.1:%d/", port)) {
			t.Errorf("port %d (%s) still answers after the stop", port, name)
		}
	}
}

func answers(url string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return true
}

// TestDemo plays the demonstration, which tells people its story and programs what came of each scene.
func TestDemo(t *testing.T) {
	t.Parallel()
	out, story, code := command(system.Context(t, 3*time.Minute), t, "demo", "--json")
	if code != 0 {
		t.Fatalf("demo: ended with %d\n%s\n%s", code, out, story)
	}
	for _, want := range []string{"All rules hold", "verify: 7 orders, ", ", 7 payments and 5 parcels agree"} {
		if !strings.Contains(story, want) {
			t.Errorf("the demo did not check the rules: %q is not in its story:\n%s", want, story)
		}
	}
	scenes := lines(t, out)
	for i, scene := range scenes {
		if want := float64((i + 1) % len(scenes)); scene["scene"] != want || scene["passed"] != true || scene["error"] != "" || scene["title"] == "" {
			t.Errorf("line %d: got %v, want scene %v, passed", i+1, scene, want)
		}
	}
	if len(scenes) != 9 {
		t.Errorf("lines: got %d, want one for each of 8 scenes, and one for the comparison", len(scenes))
	}
}
