//go:build unix && !linux

package pgcluster

import "syscall"

// tieToParent does nothing here: only Linux can tell a child that its parent died. The next Start in the folder stops
// what a killed process left running.
func tieToParent(*syscall.SysProcAttr, syscall.Signal) {}
