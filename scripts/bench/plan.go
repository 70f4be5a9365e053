package main

import "time"

// plan is how long what is measured.
type plan struct {
	quick  bool
	rounds int
	// warm is how long a load runs before it is measured, saturated how long it is then.
	warm, saturated time.Duration
	// stored is how many orders the databases hold from the beginning: on tables that were empty a moment ago the server reads all
	// rows where it should look up one, until it has counted them a minute later.
	stored int
	// idle is for one order at a time, half for half of the load that the system could carry.
	idle, half time.Duration
}

// A round of four systems takes 4 × (2 × (3 + 10) + 1 + 5 + 1 + 5) s, two and a half minutes, and three of them show what is
// noise.
var full = plan{rounds: 3, stored: 20_000, warm: 3 * time.Second, saturated: 10 * time.Second, idle: 5 * time.Second, half: 5 * time.Second}

// quickPlan ends within a minute, with 15 s for the cluster and the recording.
var quickPlan = plan{
	quick: true, rounds: 1, stored: 5_000, warm: 700 * time.Millisecond, saturated: 2 * time.Second, idle: 1500 * time.Millisecond, half: 1500 * time.Millisecond,
}

// The numbers of orders in flight that systems are measured at.
const (
	inFlight     = 64
	inFlightMany = 256
)
