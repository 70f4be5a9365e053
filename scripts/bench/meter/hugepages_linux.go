package meter

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The kernel's count of huge pages that are set aside, and their size where it is not told otherwise.
const (
	hugePagesPath = "/proc/sys/vm/nr_hugepages"
	hugePage      = 2 << 20
)

// ReserveHugePages sets huge pages aside for a server's shared memory of so many bytes, which takes a privileged user, and gives what sets aside no
// more than before. It fails, and leaves all as it was, where that is not allowed or there is not so much memory in one piece.
func ReserveHugePages(bytes int64) (restore func() error, err error) {
	before, err := hugePages()
	if err != nil {
		return nil, err
	}
	restore = func() error { return setHugePages(before) }
	free, err := meminfo("HugePages_Free:")
	if err != nil {
		return nil, err
	}
	need := (bytes+hugePage-1)/hugePage - free
	if need <= 0 {
		return func() error { return nil }, nil
	}
	if err := setHugePages(before + need); err != nil {
		return nil, err
	}
	got, err := hugePages()
	if err != nil {
		return nil, err
	}
	if got < before+need {
		if err := restore(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("reserving %d huge pages: there is room for %d", need, got-before)
	}
	return restore, nil
}

func hugePages() (int64, error) {
	text, err := os.ReadFile(hugePagesPath)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

func setHugePages(n int64) error {
	return os.WriteFile(hugePagesPath, strconv.AppendInt(nil, n, 10), 0o644)
}

// meminfo gives a number of /proc/meminfo.
func meminfo(name string) (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			return strconv.ParseInt(f[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("reading /proc/meminfo: it has no %s", name)
}
