package journal

import "errors"

// ErrCorrupt is returned by Open for a malformed line that is not the last
// one: no crash of ours leaves that behind, so it is not repaired silently.
var ErrCorrupt = errors.New("journal: malformed line")

// ErrLocked is returned by Open when another process has the file open.
var ErrLocked = errors.New("journal: in use by another process")

// ErrClosed is returned by Wait for lines that were appended after Close.
var ErrClosed = errors.New("journal: closed")
