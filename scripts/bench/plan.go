package main

import "time"

// plan is how long what is measured.
type plan struct {
	quick bool
	// rounds is how often all systems are started on new databases, and turns how often each is measured then at each load. With many
	// stored orders there is one round.
	rounds, turns, storedTurns int
	// warm is how long a load runs before it is measured, saturated how long it is then.
	warm, saturated time.Duration
	// stored is how many orders the databases hold from the beginning: on tables that were empty a moment ago the server reads all
	// rows where it should look up one, until it has counted them a minute later.
	stored int
	// idle is for one order at a time, half for half of the load that the system could carry.
	idle, half time.Duration
}

// Rates drift within minutes by more than what is to be seen. So windows are short, those that are compared follow each other within seconds,
// and what is told is the median of many turns' ratios.
var full = plan{
	rounds: 2, turns: 4, storedTurns: 4, stored: 20_000,
	warm: 2 * time.Second, saturated: 3 * time.Second, idle: 3 * time.Second, half: 3 * time.Second,
}

// quickPlan ends within a minute, with 15 s for the cluster and the recording.
var quickPlan = plan{
	quick: true, rounds: 1, turns: 1, stored: 2_000, warm: 700 * time.Millisecond, saturated: 1600 * time.Millisecond, idle: time.Second, half: time.Second,
}

// The numbers of orders in flight that systems are measured at.
const (
	inFlight     = 64
	inFlightMany = 256
)
