package sagasim

// Mutation is a known bug that is put into a schedule's world, to show that it is found. It is put in between the production code and
// its store, broker or neighbours, so that no production code knows of it.
type Mutation string

// The known bugs.
const (
	None Mutation = ""
	// NoTombstone: an undo leaves no tombstone, so an action that comes after it is performed.
	NoTombstone Mutation = "no tombstone check"
	// NoFence: a result is recorded under any token.
	NoFence Mutation = "no fence"
	// NoWaiting: an undo does not wait for what is in flight, nor shuts its owner out.
	NoWaiting Mutation = "no fence before the undo"
	// NoUndoInDoubt: a step without an outcome is not undone.
	NoUndoInDoubt Mutation = "no undo of the in-doubt step"
	// NoInbox: messages that were dealt with are not remembered.
	NoInbox Mutation = "no inbox insert"
	// NoAsking: an attempt after the first acts without asking what became of the one before.
	NoAsking Mutation = "no asking before a resend"
	// UndoDoneWhenSent: an undo counts as done when its command is sent.
	UndoDoneWhenSent Mutation = "undo counted as done when sent"
	// NoCompareAndSet: a saga is written whatever its revision is.
	NoCompareAndSet Mutation = "compare-and-set left out"
	// OneKey: where the provider repeats a stored error, no further key is ever taken.
	OneKey Mutation = "stored error taken for the truth"
)

// Mutations are all of them.
func Mutations() []Mutation {
	return []Mutation{NoTombstone, NoFence, NoWaiting, NoUndoInDoubt, NoInbox, NoAsking, UndoDoneWhenSent, NoCompareAndSet, OneKey}
}
