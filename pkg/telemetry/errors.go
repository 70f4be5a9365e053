package telemetry

import "errors"

var (
	// ErrEndpoint: Config.OTLPEndpoint does not begin with http:// or https://.
	ErrEndpoint = errors.New("the endpoint for traces must be a http or https URL")
	// ErrSampler: a sampler that is not known, or not parent-based.
	ErrSampler = errors.New("traces can not be sampled like this")
	// ErrLogFormat: a log format other than json and text.
	ErrLogFormat = errors.New(`log format must be "json" or "text"`)
)
