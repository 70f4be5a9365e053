// Package meter reads what processes have used.
package meter

import "errors"

// ErrUnsupported says that this system does not tell.
var ErrUnsupported = errors.New("not measured on this system")

// unknownMemory is what is taken for the machine's memory where it is not told: what the smallest machines have.
const unknownMemory = 4 << 30

// Process is what one process has used.
type Process struct {
	PID int
	// CPUSeconds is user and system time.
	CPUSeconds float64
	// RSS is its memory now, in bytes, and Peak the most that it has had.
	RSS, Peak int64
}
