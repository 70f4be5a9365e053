package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The codes with which the program ends. They are part of its interface, for scripts.
const (
	ExitFailed = 1
	// ExitNotFound: there is nothing of that name.
	ExitNotFound = 3
	// ExitIncomplete: what was printed is true, and not all: a service did not answer.
	ExitIncomplete = 4
	// ExitRefused: the answer is a definite no: a request that is refused whenever it comes, an order that was not sold, a cancellation
	// that came too late.
	ExitRefused = 5
	// ExitWrong: what was looked at is not as it must be.
	ExitWrong = 6
)

// coded is an error with the code that the program ends with.
type coded struct {
	error

	code int
}

func (c coded) Unwrap() error { return c.error }

// ExitCode gives the code to end with for what Run returned: 0 for nil.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if c, ok := errors.AsType[coded](err); ok {
		return c.code
	}
	return ExitFailed
}

// codeOf gives the code for what a service said, or 0 if it did not say anything definite.
func codeOf(err error) int {
	switch status.Code(err) {
	case codes.NotFound:
		return ExitNotFound
	case codes.InvalidArgument, codes.OutOfRange, codes.AlreadyExists, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated:
		return ExitRefused
	default:
		return 0
	}
}

// ending is a code that a command ends with, and when.
type ending struct {
	code int
	when string
}

// Endings that several commands have.
var (
	unknownName = ending{ExitNotFound, "there is nothing of that name"}
	someSilent  = ending{ExitIncomplete, "what was printed is true and not all: a service did not answer"}
	refusal     = ending{ExitRefused, "it was refused, and would be again"}
)

// describe adds to the help of a command what its lines of JSON are, "" if it prints none, and what codes it ends with.
func describe(cmd *cobra.Command, line string, endings ...ending) *cobra.Command {
	var b strings.Builder
	b.WriteString(cmd.Long)
	if cmd.Long == "" {
		b.WriteString(cmd.Short + ".")
	}
	if line != "" {
		fmt.Fprintf(&b, "\n\nWith --json it prints one object a line:\n  %s", line)
	}
	b.WriteString("\n\nEnds with")
	for _, e := range append(endings, ending{ExitFailed, "anything else"}) {
		fmt.Fprintf(&b, "\n  %d  %s", e.code, e.when)
	}
	cmd.Long = b.String()
	return cmd
}

// answers describes the lines of the commands of operators.
func answers(message string) string { return envelope("", message) }

// envelope is answers with members before the answer.
func envelope(more, message string) string {
	return `{"service":SERVICE,` + more + `"answer":` + message + `}`
}
