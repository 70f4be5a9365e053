package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

const (
	// patience bounds each wait, far above what a slow machine needs; installing has its own bound.
	patience       = time.Minute
	installTimeout = 10 * time.Minute
	poll           = 25 * time.Millisecond
)

// Tab is a browser with one tab. Its methods fail the test when what they are asked for does not happen.
type Tab struct {
	tb   testing.TB
	ctx  context.Context //nolint:containedctx // chromedp names the tab by it
	dir  string
	mu   sync.Mutex
	said []string
}

// Open starts a browser, whose tab is closed at the end of the test. Screenshots go to dir, which is made if it is not there.
func Open(tb testing.TB, dir string) *Tab {
	tb.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	installing, cancelInstall := context.WithTimeout(context.Background(), installTimeout)
	defer cancelInstall()
	path, err := FindOrInstall(installing, os.Stderr)
	if err != nil {
		tb.Fatal(err)
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.UserDataDir(tb.TempDir()),
		// It talks to nobody but the page.
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-quic", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("disable-dev-shm-usage", true), // containers have a small one
	}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // root cannot have one
	}
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	t := &Tab{tb: tb, ctx: ctx, dir: dir}
	tb.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // the test has ended; an error here is a browser that has, too
		cancel()
		cancelAllocator()
	})
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			t.mu.Lock()
			t.said = append(t.said, fmt.Sprintf("%s (%s:%d)", m, m.URL, m.Line+1))
			t.mu.Unlock()
		}
	}()
	return t
}

// Said is all that came to the browser's console: errors of scripts, refusals by a Content-Security-Policy, what could not be loaded.
func (t *Tab) Said() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.said...)
}

// do runs steps, and fails the test if they do not succeed in time.
func (t *Tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.tb.Fatalf("%s: %v\nat %s, where it says:\n%s\nconsole: %q", what, err, t.tryEval("location.href"), t.tryEval("document.body.innerText"), t.Said())
	}
}

// Go loads a page.
func (t *Tab) Go(url string) {
	t.tb.Helper()
	t.do("loading "+url, chromedp.Navigate(url))
}

// Click clicks on what a selector finds, once it is visible.
func (t *Tab) Click(css string) {
	t.tb.Helper()
	t.do("clicking "+css, chromedp.Click(chromedp.CSS(css), chromedp.NodeVisible))
}

// Type types into what a selector finds.
func (t *Tab) Type(css, text string) {
	t.tb.Helper()
	t.do("typing into "+css, chromedp.SendKeys(chromedp.CSS(css), text, chromedp.NodeVisible))
}

// Press presses keys wherever the focus is.
func (t *Tab) Press(keys string) {
	t.tb.Helper()
	t.do("pressing "+strconv.Quote(keys), chromedp.KeyEvent(keys))
}

// Text gives the text of what a selector finds, once it is there.
func (t *Tab) Text(css string) string {
	t.tb.Helper()
	t.Await("document.querySelector(" + strconv.Quote(css) + ")")
	return Eval[string](t, "document.querySelector("+strconv.Quote(css)+").innerText")
}

// Eval evaluates an expression in the page.
func Eval[T any](t *Tab, expression string) T {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.tb.Fatalf("evaluating %s: %v", expression, err)
	}
	return value
}

func (t *Tab) tryEval(expression string) string {
	ctx, cancel := context.WithTimeout(t.ctx, 5*time.Second)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		return err.Error()
	}
	return value
}

// Await waits until an expression is true in the page. It is asked from outside, since a strict page lets no script be made from text.
func (t *Tab) Await(expression string) {
	t.tb.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		// A page that is just being left cannot be asked.
		value, err := chromedp.Run(t.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && value {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.tb.Fatalf("waiting for %s: not true in %s (last: %v)\nat %s, where it says:\n%s\nconsole: %q", expression, patience, err,
				t.tryEval("location.href"), t.tryEval("document.body.innerText"), t.Said())
		}
	}
}

// Look is how a page is looked at.
type Look struct {
	Width, Height int64
	Dark, Mobile  bool
}

// Look changes the size of the window and the colour scheme that the reader prefers.
func (t *Tab) Look(l Look) {
	t.tb.Helper()
	scheme, options := "light", []chromedp.EmulateViewportOption(nil)
	if l.Dark {
		scheme = "dark"
	}
	if l.Mobile {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateScale(2))
	}
	t.do("changing the look", chromedp.EmulateViewport(l.Width, l.Height, options...))
	_, err := chromedp.Call(t.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	if err != nil {
		t.tb.Fatalf("changing the look: %v", err)
	}
}

// Screenshot keeps a picture of the whole page.
func (t *Tab) Screenshot(name string) {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.tb.Fatalf("taking the picture %s: %v", name, err)
	}
	path := filepath.Join(t.dir, name+".png")
	if err := os.WriteFile(path, picture, 0o644); err != nil { //nolint:gosec // a picture of a test
		t.tb.Fatal(err)
	}
}
