package host

import "syscall"

// attributes keep a Ctrl-C from a process, which is stopped in order, and end it with the bench however that ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
