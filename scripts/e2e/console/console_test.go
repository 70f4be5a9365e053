package console_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/scripts/internal/browser"
	"github.com/throughline/throughline/services/simulator/control"
)

const (
	credential = "a-credential-of-the-test"
	patience   = 3 * time.Minute
	// pictures is where the screenshots of the last run are, from this package's folder.
	pictures = "../../../.run/pictures"
)

func TestMain(m *testing.M) {
	code := m.Run()
	system.Clean()
	os.Exit(code)
}

// operator is somebody at the console of a running system.
type operator struct {
	*browser.Tab
	t    *testing.T
	sys  *system.System
	shop *system.Client
	url  string
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	dir, err := filepath.Abs(pictures)
	if err != nil {
		t.Fatal(err)
	}
	s := system.Start(t, system.Options{Environ: []string{
		"THROUGHLINE_CONSOLE_CREDENTIAL=" + credential, "THROUGHLINE_JAEGER_URL=http://jaeger.example",
	}})
	o := &operator{t: t, sys: s, shop: s.Storefront(), url: fmt.Sprintf("http://127.0.0.1:%d", s.Ports()["console"])}
	o.Tab = browser.Open(t, dir)
	return o
}

// picture takes the page as it looks on a desk by day, and on a phone by night.
func (o *operator) picture(name string) {
	o.t.Helper()
	for look, l := range map[string]browser.Look{
		"desk": {Width: 1280, Height: 800}, "phone-dark": {Width: 360, Height: 740, Mobile: true, Dark: true},
	} {
		o.Look(l)
		if wide := browser.Eval[int64](o.Tab, "document.documentElement.scrollWidth"); wide > l.Width {
			o.t.Errorf("%s, %s: the page is %d wide, want no more than %d, so that nobody has to scroll sideways", name, look, wide, l.Width)
		}
		o.Screenshot(name + "-" + look)
	}
	o.Look(browser.Look{Width: 1280, Height: 800})
}

func (o *operator) place(ctx context.Context, key string, order system.Order) string {
	o.t.Helper()
	a, err := o.shop.Place(ctx, key, order)
	if err != nil {
		o.t.Fatal(err)
	}
	return a.Order.ID
}

// early sends a reply before its order exists, which makes it a dead letter.
func (o *operator) early(ctx context.Context, key string) string {
	o.t.Helper()
	nc, err := messaging.Connect(messaging.Config{URL: fmt.Sprintf("nats://127.0.0.1:%d", o.sys.Ports()["nats"])})
	if err != nil {
		o.t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.WaitConnected(ctx); err != nil {
		o.t.Fatal(err)
	}
	id := keys.OrderID(o.shop.ID, key)
	_, err = nc.Publish(ctx, &messaging.Message{
		ID: keys.NewMessageID(), Kind: messaging.Reply, Subject: "rpl.order.place-order", Type: "throughline.shipping.v1.ShipmentDispatched", Source: "/shipping",
		AggregateID: id, IdempotencyKey: key, StepName: "dispatch_shipment", StepKey: keys.StepKey(id, "dispatch_shipment"), Outcome: messaging.OutcomeDone,
		CreatedAt: time.Now(),
	}).Wait(ctx)
	if err != nil {
		o.t.Fatal(err)
	}
	return id.String()
}

// A day at the console: look at what happens, find an order by what a customer knows, read what became of it, and deal with what waits.
func TestConsole(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ctx := system.Context(t, patience)
	early := o.early(ctx, "came-too-early")
	// Its authorization's answer is lost, its shipment refused, and its void fails twice.
	order := keys.OrderID(o.shop.ID, "a-bad-day").String()
	for _, f := range []control.Fault{
		{OrderID: order, Operation: "payment_intents.confirm", Action: control.DropAfter, Times: 1},
		{OrderID: order, Operation: "payment_intents.cancel", Action: control.FailBefore, Times: 2},
	} {
		if _, err := o.sys.Provider.AddFault(ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	bad := o.place(ctx, "a-bad-day", system.Order{PostalCode: "00000"})

	o.logIn()
	o.seesLive(ctx, "<img src=x>&'\"")
	o.readsTheStory("a-bad-day", bad)
	o.place(ctx, "came-too-early", system.Order{})
	o.replaysTheLetter(early)
	o.usesTheKeyboard()

	if said := o.Said(); len(said) > 0 {
		t.Errorf("the browser's console: got %q, want nothing: no error, no refusal by the policy", said)
	}
}

func (o *operator) logIn() {
	o.t.Helper()
	o.Go(o.url + "/attention?page=")
	o.picture("login")
	o.Type("#name", "Kim O'Neill")
	o.Type("#credential", credential)
	o.Click("button.main")
	o.Await(`document.querySelector("h1")?.innerText === "Attention desk"`) // where it was sent from
	if got := o.Text(".who span"); got != "Kim O'Neill" {
		o.t.Errorf("who is logged in: got %q, want Kim O'Neill", got)
	}
}

// seesLive has the first page open while an order is placed, with a key that tries to be more than text.
func (o *operator) seesLive(ctx context.Context, key string) {
	o.t.Helper()
	o.Go(o.url + "/")
	o.Await(`document.querySelector("[data-state=live]")`)
	browser.Eval[bool](o.Tab, "window.stayed = true") // a page that is loaded again forgets it
	id := o.place(ctx, key, system.Order{})
	row := `document.getElementById("o-` + id + `")`
	o.Await(row)
	o.Await(row + `?.innerText.includes("confirmed")`)
	if got := browser.Eval[string](o.Tab, row+`.querySelector("[data-label=Key]").textContent`); got != key {
		o.t.Errorf("key in the list: got %q, want it as text: %q", got, key)
	}
	if !browser.Eval[bool](o.Tab, "window.stayed === true") {
		o.t.Error("the page was loaded again, want it to move by itself")
	}
	o.Await(`document.querySelectorAll(".tile .line").length === 8`)
	o.picture("now")

	// Paused, it stands still.
	o.Click("[data-pause]")
	o.Await(`document.querySelector("[data-state=paused]")`)
	held := o.place(ctx, key+"2", system.Order{})
	o.shopSees(ctx, held, "CONFIRMED")
	if browser.Eval[bool](o.Tab, `!!document.getElementById("o-`+held+`")`) {
		o.t.Error("paused: got the new order in the list, want it held back")
	}
	o.Click("[data-pause]")
	o.Await(`document.getElementById("o-` + held + `")`)
}

func (o *operator) shopSees(ctx context.Context, id, want string) {
	o.t.Helper()
	system.Eventually(ctx, o.t, "order "+id+" to be "+want, func() bool {
		a, err := o.shop.Get(ctx, id)
		return err == nil && a.Order.Status == want
	})
}

// readsTheStory finds an order by the key that its customer knows, and reads its lanes.
func (o *operator) readsTheStory(key, id string) {
	o.t.Helper()
	o.shopSees(system.Context(o.t, patience), id, "FAILED")
	o.Type("#q", key+"\r")
	o.Await(`document.querySelector("ol.story")`)
	if got := o.Text("h1"); !strings.Contains(got, id) {
		o.t.Errorf("found by its key: got %q, want order %s", got, id)
	}
	for lane, want := range map[string]int{"order": 5, "payment": 4, "shipping": 2} {
		if got := browser.Eval[int](o.Tab, `document.querySelectorAll("li.moment.`+lane+`").length`); got < want {
			o.t.Errorf("lane of %s: got %d entries, want at least %d", lane, got, want)
		}
	}
	columns := browser.Eval[[]int](o.Tab, `["order", "payment", "shipping"].map(s => Math.round(document.querySelector("li.moment." + s + " article").getBoundingClientRect().left))`)
	if columns[0] >= columns[1] || columns[1] >= columns[2] {
		o.t.Errorf("lanes: got them at %v, want one beside the other", columns)
	}
	story := o.Text("ol.story")
	for _, want := range []string{"authorize_payment", "void_payment", "unknown", "refused", "undo"} {
		if !strings.Contains(story, want) {
			o.t.Errorf("the story does not tell %q:\n%s", want, story)
		}
	}
	if got := browser.Eval[int](o.Tab, `document.querySelectorAll("li.moment.undo").length`); got < 3 {
		o.t.Errorf("undo: got %d entries, want the two voids that failed and the one that did not", got)
	}
	if got := browser.Eval[string](o.Tab, `document.querySelector(".facts a[href*=jaeger]").href`); !strings.HasPrefix(got, "http://jaeger.example/trace/") {
		o.t.Errorf("link to the trace: got %q, want one in Jaeger", got)
	}
	if page := browser.Eval[string](o.Tab, "document.body.textContent"); strings.Contains(page, "High St") {
		o.t.Error("the story shows the customer's address, want it masked")
	}
	o.picture("story")
	o.Click(`a[href$="messages=1"]`)
	o.Await(`document.querySelector("li.moment.minor")`)
	o.picture("story-messages")
}

// replaysTheLetter deals with the dead letter of an order.
func (o *operator) replaysTheLetter(order string) {
	o.t.Helper()
	o.shopSees(system.Context(o.t, patience), order, "CONFIRMED")
	o.Click(`nav a[href="/dead-letters"]`)
	o.Await(`document.querySelector(".list a.id")`)
	o.picture("dead-letters")
	o.Click(".list a.id")
	if got := o.Text("pre.error"); !strings.Contains(got, "no such saga") {
		o.t.Errorf("error of the dead letter: got %q, want the saga missing", got)
	}
	o.picture("dead-letter")
	o.Click(`a[href$="/replay"]`)
	if got := o.Text(".effects"); !strings.Contains(got, "Dry run:") {
		o.t.Errorf("effects: got %q, want those of a dry run", got)
	}
	o.picture("confirm")
	o.Type("#reason", "the order is there now")
	o.Click("button.main")
	if got := o.Text(".notice.good"); !strings.Contains(got, "Replay: done") {
		o.t.Errorf("after the replay: got %q, want it done", got)
	}
	if got := o.Text("main"); !strings.Contains(got, "Kim O'Neill@console") || !strings.Contains(got, "the order is there now") {
		o.t.Errorf("record of the replay: got %q, want who and why", got)
	}
}

// usesTheKeyboard goes from page to page without a mouse.
func (o *operator) usesTheKeyboard() {
	o.t.Helper()
	o.Go(o.url + "/services")
	o.picture("services")
	o.Press("\t")
	if got := browser.Eval[string](o.Tab, "document.activeElement.className"); got != "skip" {
		o.t.Errorf("first stop of the keyboard: got %q, want the link over the navigation", got)
	}
	o.Press("\r")
	o.Await(`location.hash === "#main"`)
	o.Go(o.url + "/services")
	for range 3 { // over the link and the brand to the search
		o.Press("\t")
	}
	if got := browser.Eval[string](o.Tab, "document.activeElement.id"); got != "q" {
		o.t.Errorf("third stop of the keyboard: got %q, want the search", got)
	}
	o.Press("a-bad-day\r")
	o.Await(`document.querySelector("ol.story")`)
}
