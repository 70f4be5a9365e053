package outbox

// AuditStatements are what an audit reads with, for a look at their plans.
var AuditStatements = map[string]string{
	"written": selectWritten, "concerned": selectConcerned, "sent within": selectSentWithin, "sent at": selectSentAt,
	"written about": selectWrittenAbout,
}
