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

// Memory gives how many bytes of memory the machine has.
func Memory() int64 {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return unknownMemory
	}
	return int64(info.Totalram) * int64(info.Unit) //nolint:gosec // no machine has that much
}
