package inbox

import "errors"

// ErrPermanent marks an error that no further attempt can mend: the message is dead-lettered at once.
var ErrPermanent = errors.New("message can not be handled")
