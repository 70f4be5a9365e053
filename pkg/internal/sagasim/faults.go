package sagasim

import (
	"fmt"
	"slices"
	"strings"
)

// edge is a kind of operation. A process may die before it and after it.
type edge struct {
	name  string
	crash bool
}

var (
	edgeNone    = edge{"nothing", false}
	edgeRead    = edge{"read", false}
	edgeIntake  = edge{"intake", true}
	edgeClaim   = edge{"claim", false}
	edgeFence   = edge{"fence", false}
	edgeCall    = edge{"call", true}
	edgeRecord  = edge{"record", true}
	edgeAdvance = edge{"advance", true}
	edgePublish = edge{"publish", true}
	edgeAck     = edge{"ack", true}
	edgeAsk     = edge{"ask", false}
)

func crashBefore(e edge) fault { return fault("crash before " + e.name) }
func crashAfter(e edge) fault  { return fault("crash after " + e.name) }

// fault is a row of the table of what went wrong.
type fault string

const (
	commandLost      fault = "command lost by the broker"
	commandGone      fault = "command gone for good"
	commandRepeated  fault = "command repeated"
	commandDelayed   fault = "command delayed"
	commandOvertaken fault = "command overtaken"
	replyLost        fault = "reply lost by the broker"
	replyGone        fault = "reply gone for good"
	replyRepeated    fault = "reply repeated"
	replyDelayed     fault = "reply delayed"
	replyOvertaken   fault = "reply overtaken"
	ackLost          fault = "acknowledgement lost"
	requestLost      fault = "request lost"
	answerLost       fault = "answer lost after the effect"
	requestLate      fault = "effect after the caller gave up"
	pinned           fault = "stored error repeated for a key"
	ownerFrozen      fault = "owner frozen beyond its lease"
	takenOver        fault = "taken over from an owner"
	fencedOut        fault = "late result shut out"
	asked            fault = "deadline passed, asked"
	askedInVain      fault = "asked in vain"
	sentAgain        fault = "command sent again"
	usedUp           fault = "budget used up"
	raced            fault = "race lost, read again"
	cancelled        fault = "cancel while under way"
	besideOpen       fault = "refused beside an open step"
	undoneBeside     fault = "undone beside an undo"
	triedByPerson    fault = "a person tries again"
	undoneByPerson   fault = "a person undoes it otherwise"
	saidDone         fault = "a person says that it is done"
)

// only lists the steps that a fault can meet, where it cannot meet all.
var only = map[fault][]string{
	pinned:         {authorize, capture, void}, // the carrier keeps nothing under a key
	besideOpen:     {authorize, create},
	undoneBeside:   {void, cancelShipment},
	triedByPerson:  {capture, dispatch, void, cancelShipment},
	undoneByPerson: {capture, dispatch, void, cancelShipment},
	saidDone:       {capture, dispatch, void, cancelShipment},
}

func (f fault) meets(step string) bool {
	steps, some := only[f]
	return !some || slices.Contains(steps, step)
}

// faults are the rows of the table, in its order.
func faults() []fault {
	rows := []fault{
		commandLost, commandGone, commandRepeated, commandDelayed, commandOvertaken, replyLost, replyGone, replyRepeated, replyDelayed,
		replyOvertaken, ackLost,
		requestLost, answerLost, requestLate, pinned,
	}
	for _, e := range []edge{edgeIntake, edgeCall, edgeRecord, edgeAdvance, edgePublish, edgeAck} {
		rows = append(rows, crashBefore(e), crashAfter(e))
	}
	return append(rows, ownerFrozen, takenOver, fencedOut, asked, askedInVain, sentAgain, usedUp, raced, cancelled, besideOpen,
		undoneBeside, triedByPerson, undoneByPerson, saidDone)
}

// The steps, which are the columns of the table.
const (
	authorize      = "authorize_payment"
	create         = "create_shipment"
	capture        = "capture_payment"
	dispatch       = "dispatch_shipment"
	void           = "void_payment"
	cancelShipment = "cancel_shipment"
)

func steps() []string { return []string{authorize, create, capture, dispatch, void, cancelShipment} }

// Table counts how often each fault met each step.
type Table map[fault]map[string]int

func (t Table) hit(f fault, steps ...string) {
	if t[f] == nil {
		t[f] = make(map[string]int)
	}
	for _, s := range steps {
		t[f][s]++
	}
}

// Add adds another table.
func (t Table) Add(other Table) {
	for f, row := range other {
		for s, n := range row {
			if t[f] == nil {
				t[f] = make(map[string]int)
			}
			t[f][s] += n
		}
	}
}

// Missing lists the faults that never met a step.
func (t Table) Missing() []string {
	var missing []string
	for _, f := range faults() {
		for _, s := range steps() {
			if f.meets(s) && t[f][s] == 0 {
				missing = append(missing, fmt.Sprintf("%s × %s", f, s))
			}
		}
	}
	return missing
}

func (t Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-34s", "fault × step")
	for _, s := range steps() {
		fmt.Fprintf(&b, "%18s", s)
	}
	for _, f := range faults() {
		fmt.Fprintf(&b, "\n%-34s", f)
		for _, s := range steps() {
			if !f.meets(s) {
				fmt.Fprintf(&b, "%18s", "–")
				continue
			}
			fmt.Fprintf(&b, "%18d", t[f][s])
		}
	}
	return b.String()
}
