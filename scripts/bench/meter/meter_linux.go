package meter

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/*/stat: USER_HZ is 100 on every Linux.
const tick = time.Second / 100

// Fields of /proc/*/stat, counted from the one after the command's name.
const (
	fieldParent = 1
	fieldUser   = 11
	fieldDead   = 13 // user time of children that have ended
	fieldCount  = 15
)

// stat gives the fields of a process, or none if it has ended.
func stat(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// The name may hold anything, also spaces and brackets.
	end := bytes.LastIndexByte(text, ')')
	fields := strings.Fields(string(text[end+1:]))
	if end < 0 || len(fields) < fieldCount {
		return nil, fmt.Errorf("reading /proc/%d/stat: %q", pid, text)
	}
	return fields, nil
}

func ticks(fields []string) time.Duration {
	var sum time.Duration
	for _, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err == nil {
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// running is the CPU time of a process, to the nanosecond where the kernel keeps it.
func running(pid int, fields []string) time.Duration {
	// The first number of schedstat is only of the main thread, which is all that a server process of Postgres has.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err == nil {
		if first, _, ok := strings.Cut(string(text), " "); ok {
			if n, err := strconv.ParseInt(first, 10, 64); err == nil {
				return time.Duration(n)
			}
		}
	}
	return ticks(fields[fieldUser : fieldUser+2])
}

// Family is the CPU time of a process of one thread and of its children, those that have ended included.
func Family(pid int) (time.Duration, error) {
	parent, err := stat(pid)
	if err != nil {
		return 0, err
	}
	sum := running(pid, parent) + ticks(parent[fieldDead:fieldDead+2])
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		fields, err := stat(child)
		if err != nil || fields[fieldParent] != strconv.Itoa(pid) {
			continue // it has ended meanwhile, or is another's
		}
		sum += running(child, fields)
	}
	return sum, nil
}

// Read reads what a process has used.
func Read(pid int) (Process, error) {
	p := Process{PID: pid}
	fields, err := stat(pid)
	if err != nil {
		return p, fmt.Errorf("reading the use of process %d: %w", pid, err)
	}
	p.CPUSeconds = ticks(fields[fieldUser : fieldUser+2]).Seconds()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return p, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 2 {
			continue
		}
		at := map[string]*int64{"VmRSS:": &p.RSS, "VmHWM:": &p.Peak}[f[0]]
		if at == nil {
			continue
		}
		kilobytes, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return p, fmt.Errorf("reading the memory of process %d: %w", pid, err)
		}
		*at = kilobytes << 10
	}
	return p, nil
}
