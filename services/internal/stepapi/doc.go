// Package stepapi is how the orchestrator learns what became of a step before it decides anything: participants serve
// StepService from their own record of steps, and the orchestrator asks them through [Participants].
//
// An answer says what the participant's database said at some moment after the question was sent. "No record" therefore
// never means that nothing will happen: the command may be on its way. Neither side has any effect, so that a question may
// be repeated at will.
package stepapi
