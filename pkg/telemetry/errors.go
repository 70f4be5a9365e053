package telemetry

import "errors"

var (
	// ErrEndpoint: Config.OTLPEndpoint does not begin with http:// or https://.
	ErrEndpoint = errors.New("the endpoint for traces must be a http or https URL")
	// ErrLogFormat: a log format other than json and text.
	ErrLogFormat = errors.New(`log format must be "json" or "text"`)
)
