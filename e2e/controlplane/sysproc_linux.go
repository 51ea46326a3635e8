package controlplane

import "syscall"

// sysProcAttr makes the kernel kill the child when the thread that started it
// ends: nothing else runs when a test process is killed.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
