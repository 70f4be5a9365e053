//go:build !linux

package host

import "syscall"

// attributes keep a Ctrl-C from a process, which is stopped in order.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
