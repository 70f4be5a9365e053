package inbox

import "errors"

// ErrPermanent marks an error that no further attempt can mend: the message is dead-lettered at once.
var ErrPermanent = errors.New("message can not be handled")

// ErrElsewhere marks an error that says that this process cannot handle the message, while another release can: it is given back, again
// and again, and neither counted nor dead-lettered. It is not for consumers of events.
var ErrElsewhere = errors.New("message is for another release")
