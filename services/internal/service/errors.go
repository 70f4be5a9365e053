package service

import "errors"

var (
	// errMetricsExporter: a way for metrics that is not known.
	errMetricsExporter = errors.New("OTEL_METRICS_EXPORTER must be prometheus or otlp")

	// ErrArguments says that the program was called with arguments that it does not know.
	ErrArguments = errors.New("the only argument is \"healthcheck\"; settings come from the environment")

	// ErrNotReady is what healthcheck ends with when the service is there and not ready.
	ErrNotReady = errors.New("the service is not ready")

	// errStarting says that what a check is about does not exist yet.
	errStarting = errors.New("still starting")
)
