//go:build !faultpoints

package fault

import (
	"fmt"

	"github.com/google/uuid"
)

// Enabled reports whether this binary was built with fault points.
const Enabled = false

// Point marks a passage. Here it does nothing and costs nothing.
func Point(name string) {}

// At marks a passage about one order, and about what of it. Here it does nothing and costs nothing.
func At(name string, order uuid.UUID, what string) {}

// Check returns [ErrNotCompiled] if environ (in the form of os.Environ) asks for
// fault points. Call it first at start-up and end on an error.
func Check(environ []string) error {
	if v := value(environ); v != "" {
		return fmt.Errorf("%s=%s: %w", EnvVar, v, ErrNotCompiled)
	}
	return nil
}
