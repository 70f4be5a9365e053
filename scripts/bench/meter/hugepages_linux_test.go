package meter

import "testing"

func TestMeminfo(t *testing.T) {
	t.Parallel()
	total, err := meminfo("MemTotal:")
	if err != nil {
		t.Fatal(err)
	}
	// What the kernel keeps for itself is in neither, and both change a little while pages come and go.
	if kilobytes := Memory() >> 10; total < kilobytes*9/10 || total > kilobytes*11/10 {
		t.Errorf("got %d kB of memory and %d kB of it in /proc/meminfo, want about the same", kilobytes, total)
	}
	if n, err := meminfo("NoSuchThing:"); err == nil {
		t.Errorf("got %d of what is not there, want an error", n)
	}
}
