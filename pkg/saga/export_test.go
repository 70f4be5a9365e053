package saga

// What tests count on.
const (
	Askers      = askers
	SilentAfter = silentAfter
)
