package natsserver

import (
	"fmt"
	"log/slog"
	"sync"
)

// logAdapter hands the server's log lines to slog. The server calls Fatalf where it cannot start; here that does not end
// the process, and the line becomes part of the error of [Start].
type logAdapter struct {
	logger *slog.Logger

	mu    sync.Mutex
	fatal string
}

func (l *logAdapter) Noticef(format string, v ...any) { l.logger.Info(line(format, v)) }
func (l *logAdapter) Warnf(format string, v ...any)   { l.logger.Warn(line(format, v)) }
func (l *logAdapter) Errorf(format string, v ...any)  { l.logger.Error(line(format, v)) }
func (l *logAdapter) Debugf(format string, v ...any)  { l.logger.Debug(line(format, v)) }
func (l *logAdapter) Tracef(format string, v ...any)  { l.logger.Debug(line(format, v)) }

func (l *logAdapter) Fatalf(format string, v ...any) {
	text := line(format, v)
	l.mu.Lock()
	l.fatal = text
	l.mu.Unlock()
	l.logger.Error(text)
}

// lastFatal returns what kept the server from starting, to append to an error.
func (l *logAdapter) lastFatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == "" {
		return ""
	}
	return ": " + l.fatal
}

func line(format string, v []any) string { return "nats server: " + fmt.Sprintf(format, v...) }
