package pgcluster

import "syscall"

// tieToParent makes the kernel send sig to the child when the thread that started it ends; see [child].
func tieToParent(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }
