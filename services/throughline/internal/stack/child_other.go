//go:build unix && !linux

package stack

import "syscall"

// childAttributes put a child into a process group of its own, so that a Ctrl-C reaches it only through us, in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
