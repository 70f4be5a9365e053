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

	once   sync.Once
	failed chan struct{} // closed when fatal has been written
	fatal  string
}

func newLogAdapter(logger *slog.Logger) *logAdapter {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &logAdapter{logger: logger, failed: make(chan struct{})}
}

func (l *logAdapter) Noticef(format string, v ...any) { l.logger.Info(line(format, v)) }
func (l *logAdapter) Warnf(format string, v ...any)   { l.logger.Warn(line(format, v)) }
func (l *logAdapter) Errorf(format string, v ...any)  { l.logger.Error(line(format, v)) }
func (l *logAdapter) Debugf(format string, v ...any)  { l.logger.Debug(line(format, v)) }
func (l *logAdapter) Tracef(format string, v ...any)  { l.logger.Debug(line(format, v)) }

func (l *logAdapter) Fatalf(format string, v ...any) {
	text := line(format, v)
	l.once.Do(func() {
		l.fatal = text
		close(l.failed)
	})
	l.logger.Error(text)
}

func line(format string, v []any) string { return "nats server: " + fmt.Sprintf(format, v...) }
