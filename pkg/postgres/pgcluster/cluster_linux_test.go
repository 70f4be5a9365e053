package pgcluster_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Nothing of the server outlives the process that started it.
func TestNothingOutlivesAKilledParent(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	cmd, _ := helper(t, dir)
	address := net.JoinHostPort("127.0.0.1", portOf(t, dir))
	kill(t, cmd.Process)
	_ = cmd.Wait()
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("the server still answers")
		}
	}
}

// What a transaction needed is there for the next one: its pages are not taken from the kernel again.
func TestMemoryIsKeptBetweenTransactions(t *testing.T) {
	t.Parallel()
	conn := connect(t, start(t, config(tempDir(t))).SuperuserURL("postgres"))
	var pid int
	if err := conn.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	// Each of these sorts has memory of its own, in pieces that the C library takes from the end of the heap, until the statement ends.
	const sorts, times = 20, 20
	parts := make([]string, sorts)
	for i := range parts {
		parts[i] = `(SELECT i FROM generate_series(1, 500) AS i ORDER BY -i)`
	}
	statement := `SELECT count(*)::text FROM (` + strings.Join(parts, ` UNION ALL `) + `) AS t`
	spend := func() {
		for range times {
			exec1(t, conn, statement)
		}
	}
	spend()
	before := faults(t, pid)
	spend()
	if n := faults(t, pid) - before; n > times*sorts/4 {
		t.Errorf("got %d page faults in %d statements of %d sorts each, want their memory to be kept", n, times, sorts)
	}
}

// faults is how many pages a process has taken from the kernel's memory.
func faults(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	const minor = 7 // counted from the field after the command's name, which may hold blanks
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	n, err := strconv.Atoi(fields[minor])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
