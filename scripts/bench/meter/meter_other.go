//go:build !linux

package meter

import (
	"math"
	"time"
)

// Family is the CPU time of a process and of its children.
func Family(int) (time.Duration, error) { return 0, ErrUnsupported }

// Read reads what a process has used.
func Read(pid int) (Process, error) { return Process{PID: pid}, nil }

// Room gives no limit: it is not known here.
func Room(string) (int64, error) { return math.MaxInt64, nil }

// Memory gives what the smallest machines have: it is not known here.
func Memory() int64 { return unknownMemory }

// ReserveHugePages is not done here.
func ReserveHugePages(int64) (func() error, error) { return nil, ErrUnsupported }

// Flush does nothing: the kernel writes when it likes.
func Flush() {}
