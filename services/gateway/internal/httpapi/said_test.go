package httpapi

import "testing"

func TestPreferredWait(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lines []string
		want  int32
	}{
		{nil, 0}, {[]string{""}, 0}, {[]string{"wait=10"}, 10}, {[]string{" Wait = 10 "}, 10}, {[]string{`wait="10"`}, 10},
		{[]string{"respond-async, wait=5; x=1"}, 5}, {[]string{`foo="a,wait=1\",wait=2", wait=3`}, 3}, {[]string{"respond-async", "wait=7"}, 7},
		{[]string{"wait=1, wait=2"}, 1}, {[]string{"wait=1", "wait=2"}, 1}, {[]string{"waits=1"}, 0},
		{[]string{"wait"}, 0}, {[]string{"wait="}, 0}, {[]string{"wait=-1"}, 0}, {[]string{"wait=+1"}, 0}, {[]string{"wait=1.5"}, 0},
		{[]string{`wait="`}, 0}, {[]string{"wait=0"}, 0}, {[]string{"wait=99999999999999999999"}, maxWaitSeconds}, {[]string{"wait=2147483647"}, maxWaitSeconds},
	} {
		if got := preferredWait(tt.lines); got != tt.want {
			t.Errorf("%q: got %d, want %d", tt.lines, got, tt.want)
		}
	}
}
