package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// SyncInterval is how often written lines are flushed to the disk: what a
// power cut, and only a power cut, can take away.
const SyncInterval = 250 * time.Millisecond

// A Journal is one open file. All methods are safe for concurrent use.
type Journal struct {
	path string
	file *os.File

	mu       sync.Mutex // guards the three below
	pending  []byte     // appended, not yet written
	appended uint64     // lines appended so far
	closed   bool

	writeMu sync.Mutex // held during write(2); taken before mu
	spare   []byte     // the other buffer, reused
	written uint64     // lines written so far
	dirty   bool       // written since the last flush to disk
	failed  error      // the first write error; the journal takes no more

	stop chan struct{}
	done sync.WaitGroup
}

// Open opens or creates the file at path, calls replay with every line in
// order (the slice is only valid during the call), and cuts off a torn last
// line. An error from replay stops Open. Folders are created as needed.
func Open(path string, replay func(line []byte) error) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("creating journal folder: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening journal: %w", err)
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	end, err := read(f, replay)
	if err == nil {
		err = cutTail(f, end)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading journal %s: %w", path, err), f.Close())
	}
	j := &Journal{path: path, file: f, stop: make(chan struct{})}
	j.done.Add(1)
	go j.syncLoop()
	return j, nil
}

func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("locking %s: %w", f.Name(), ErrLocked)
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return nil
}

// read replays whole lines and returns the offset after the last good one.
func read(f *os.File, replay func([]byte) error) (int64, error) {
	r := bufio.NewReaderSize(f, 1<<20)
	var offset int64
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return offset, nil // line, if any, has no newline: torn
		}
		if err != nil {
			return 0, err
		}
		if !json.Valid(line) {
			// A file system may show the length of a write before its
			// content, so garbage at the very end is a torn line as well.
			if _, err := r.Peek(1); errors.Is(err, io.EOF) {
				return offset, nil
			}
			return 0, fmt.Errorf("line %d: %w", n, ErrCorrupt)
		}
		if err := replay(bytes.TrimSuffix(line, []byte{'\n'})); err != nil {
			return 0, fmt.Errorf("line %d: %w", n, err)
		}
		offset += int64(len(line))
	}
}

func cutTail(f *os.File, end int64) error {
	if err := f.Truncate(end); err != nil {
		return fmt.Errorf("cutting torn line: %w", err)
	}
	_, err := f.Seek(end, io.SeekStart)
	return err
}

// Append adds v as one line and returns its number for Wait. It does no I/O.
// Callers that need lines in the order of their own state changes call it
// while they hold their lock, and Wait after they have let go of it.
func (j *Journal) Append(v any) (uint64, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return 0, fmt.Errorf("encoding journal line: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return 0, ErrClosed
	}
	j.pending = append(append(j.pending, line...), '\n')
	j.appended++
	return j.appended, nil
}

// Wait returns when line n, and every line before it, has been written. After
// a failed write every Wait returns that error: what the file holds from there
// on is unknown, and the next Open will tell.
func (j *Journal) Wait(n uint64) error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	if j.written >= n {
		return nil
	}
	return j.flushLocked()
}

// flushLocked writes everything appended so far; writeMu is held.
func (j *Journal) flushLocked() error {
	if j.failed != nil {
		return j.failed
	}
	j.mu.Lock()
	batch, upTo := j.pending, j.appended
	j.pending = j.spare[:0]
	j.mu.Unlock()
	j.spare = batch
	if len(batch) == 0 {
		return nil
	}
	if _, err := j.file.Write(batch); err != nil {
		j.failed = fmt.Errorf("writing journal: %w", err)
		return j.failed
	}
	j.written, j.dirty = upTo, true
	return nil
}

// Truncate empties the file: everything appended so far is forgotten.
func (j *Journal) Truncate() error { return j.Rewrite(nil) }

// Rewrite replaces the file's content by lines, all or nothing: a crash leaves
// the old file or the new one. The caller must keep others from appending.
func (j *Journal) Rewrite(lines []any) error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	if err := j.flushLocked(); err != nil {
		return err
	}
	next, err := j.writeNext(lines)
	if err != nil {
		return fmt.Errorf("rewriting journal: %w", err)
	}
	old := j.file
	j.file = next
	if err := old.Close(); err != nil {
		return fmt.Errorf("closing old journal: %w", err)
	}
	return nil
}

func (j *Journal) writeNext(lines []any) (_ *os.File, err error) {
	temp := j.path + ".next"
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(temp))
		}
	}()
	if err := lock(f); err != nil {
		return nil, err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	enc := json.NewEncoder(w)
	for _, line := range lines {
		if err := enc.Encode(line); err != nil {
			return nil, err
		}
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	if err := os.Rename(temp, j.path); err != nil {
		return nil, err
	}
	return f, syncFolder(filepath.Dir(j.path))
}

// syncFolder makes a rename durable.
func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (j *Journal) syncLoop() {
	defer j.done.Done()
	tick := time.NewTicker(SyncInterval)
	defer tick.Stop()
	for {
		select {
		case <-j.stop:
			return
		case <-tick.C:
			j.syncOnce()
		}
	}
}

// syncOnce flushes to the disk without holding up writers meanwhile. The file
// may be replaced by Rewrite in between; that has its own flush.
func (j *Journal) syncOnce() {
	j.writeMu.Lock()
	f, dirty := j.file, j.dirty
	j.dirty = false
	j.writeMu.Unlock()
	if !dirty {
		return
	}
	if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
		j.writeMu.Lock()
		j.failed = fmt.Errorf("flushing journal: %w", err)
		j.writeMu.Unlock()
	}
}

// Close writes and flushes what has been appended and closes the file. Append
// fails from then on. Close may be called twice.
func (j *Journal) Close() error {
	j.mu.Lock()
	closed := j.closed
	j.closed = true
	j.mu.Unlock()
	if closed {
		return nil
	}
	close(j.stop)
	j.done.Wait()
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	err := j.flushLocked()
	err = errors.Join(err, j.file.Sync())
	// Closing alone would not unlock it while a child process that is just being started holds the open file, too.
	return errors.Join(err, syscall.Flock(int(j.file.Fd()), syscall.LOCK_UN), j.file.Close())
}
