package shim

import "golang.org/x/sys/unix"

// archCalls exist on x86 alone.
func archCalls() map[string]func() error {
	return map[string]func() error{
		"modify_ldt": func() error { // func 0 reads
			var buf [16]byte
			return sys(unix.SYS_MODIFY_LDT, 0, ptr(&buf), uintptr(len(buf)))
		},
		"iopl":   func() error { return sys(unix.SYS_IOPL, 3) },
		"ioperm": func() error { return sys(unix.SYS_IOPERM, 0x80, 1, 1) },
	}
}
