package meter

import (
	"fmt"
	"syscall"
)

// Room gives how many bytes a folder's file system has left for this process.
func Room(dir string) (int64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("reading the room in %s: %w", dir, err)
	}
	return int64(fs.Bavail) * fs.Bsize, nil //nolint:gosec // no file system has that many blocks
}
