package telemetry

import (
	"fmt"
	"strconv"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// SampleRatio samples this part (0 to 1) of all traces. Whether a parent was
// sampled is kept, so that a trace is recorded by all services or by none.
func SampleRatio(ratio float64) sdktrace.Sampler {
	return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))
}

// SampleAtEdge is [SampleRatio] for the service where outsiders come in: a caller that did not record its own part
// has no say in whether we record ours, or a client could hide the orders that fail from us. One that did record it
// is followed.
func SampleAtEdge(ratio float64) sdktrace.Sampler {
	own := sdktrace.TraceIDRatioBased(ratio)
	return sdktrace.ParentBased(own, sdktrace.WithRemoteParentNotSampled(own))
}

// The samplers of OTEL_TRACES_SAMPLER that keep a trace whole.
const (
	SamplerAlwaysOn  = "parentbased_always_on"
	SamplerAlwaysOff = "parentbased_always_off"
	SamplerRatio     = "parentbased_traceidratio"
)

// ParseRatio reads OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG: the part of all traces to sample. Empty ones mean all. Samplers
// that are not parent-based would tear traces apart, and are refused with [ErrSampler].
func ParseRatio(sampler, arg string) (float64, error) {
	switch sampler {
	case "", SamplerAlwaysOn:
		return 1, nil
	case SamplerAlwaysOff:
		return 0, nil
	case SamplerRatio:
		if arg == "" {
			return 1, nil
		}
		ratio, err := strconv.ParseFloat(arg, 64)
		if err != nil || !(ratio >= 0 && ratio <= 1) {
			return 0, fmt.Errorf("%w: OTEL_TRACES_SAMPLER_ARG is %q, not a number from 0 to 1", ErrSampler, arg)
		}
		return ratio, nil
	}
	return 0, fmt.Errorf("%w: OTEL_TRACES_SAMPLER is %q, not %s, %s or %s", ErrSampler, sampler, SamplerAlwaysOn, SamplerAlwaysOff, SamplerRatio)
}
