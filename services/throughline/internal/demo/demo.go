package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/throughline/throughline/pkg/postgres/pgcluster"
	"github.com/throughline/throughline/pkg/telemetry"
	"github.com/throughline/throughline/services/throughline/internal/stack"
)

const (
	// sceneTimeout bounds one scene; each takes well under a second, but for those that wait for a retry.
	sceneTimeout = 30 * time.Second
	grace        = 5 * time.Second
)

// Outcome is what came of a scene, or of the comparison of orders, money and parcels after all scenes.
type Outcome struct {
	// Scene counts from 1; 0 is the comparison at the end.
	Scene  int    `json:"scene"`
	Title  string `json:"title"`
	Passed bool   `json:"passed"`
	// Error says what is not as it should be.
	Error string `json:"error"`
}

// Run plays all scenes. It gives an error if a scene did not end as it should, or if a rule is broken. Out is told for people what happens,
// and report, which may be nil, what came of each scene.
func Run(stop, work context.Context, out io.Writer, report func(Outcome)) (err error) {
	dir, err := os.MkdirTemp("", "throughline-demo-")
	if err != nil {
		return fmt.Errorf("making a data folder: %w", err)
	}
	defer func() { err = errors.Join(err, remove(stop, dir)) }()
	logFile, err := os.Create(filepath.Join(dir, "demo.log"))
	if err != nil {
		return fmt.Errorf("making a log: %w", err)
	}
	defer logFile.Close()

	o := stack.Defaults()
	if o.Ports, err = stack.FreePorts(stop, o.Instances); err != nil {
		return err
	}
	o.Data, o.Progress, o.Grace = dir, out, grace
	if o.Logger, err = telemetry.NewLogger(logFile, "text", slog.LevelInfo, "", ""); err != nil {
		return err
	}

	fmt.Fprintln(out, "Starting a fresh system (Postgres, JetStream, both simulators, four services)")
	began := time.Now()
	running, end := context.WithCancel(stop)
	defer end()
	var played error
	err = stack.Run(running, work, o, func(s *stack.Stack) {
		fmt.Fprintf(out, "  ready after %s\n", time.Since(began).Round(100*time.Millisecond))
		go func() {
			defer end()
			played = play(running, s, out, report)
		}()
	})
	<-running.Done()
	if err := errors.Join(played, err); err != nil {
		if text, failed := os.ReadFile(logFile.Name()); failed == nil {
			fmt.Fprintf(out, "\nThe log of the system, its last lines:\n%s\n", tail(text))
		}
		return err
	}
	if stop.Err() != nil {
		return errors.New("interrupted")
	}
	return nil
}

// remove deletes the data folder, and the database's files where they had to be kept elsewhere.
func remove(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return errors.Join(pgcluster.Remove(ctx, filepath.Join(dir, "postgres")), os.RemoveAll(dir))
}

func tail(text []byte) []byte {
	const most = 8 << 10
	return text[max(0, len(text)-most):]
}

func play(ctx context.Context, s *stack.Stack, out io.Writer, report func(Outcome)) error {
	told := func(scene int, title string, err error) {
		o := Outcome{Scene: scene, Title: title, Passed: err == nil}
		if err != nil {
			o.Error = err.Error()
		}
		if report != nil {
			report(o)
		}
	}
	st, err := newStage(ctx, s, out)
	if err != nil {
		return err
	}
	defer st.close()
	began := time.Now()
	var failed error
	for i, scene := range scenes {
		fmt.Fprintf(out, "\n%d. %s\n", i+1, scene.title)
		ctx, cancel := context.WithTimeout(ctx, sceneTimeout)
		err := scene.play(ctx, st)
		cancel()
		told(i+1, scene.title, err)
		if err != nil {
			fmt.Fprintf(out, "   FAILED: %v\n", err)
			failed = errors.Join(failed, fmt.Errorf("scene %d, %s: %w", i+1, scene.title, err))
		}
		if ctx.Err() != nil && failed != nil {
			return failed
		}
	}
	err = st.settle(ctx, time.Since(began))
	told(0, "Orders, money and parcels agree", err)
	return errors.Join(failed, err)
}
