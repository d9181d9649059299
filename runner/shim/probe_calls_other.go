//go:build !amd64

package shim

// archCalls exist on x86 alone.
func archCalls() map[string]func() error { return nil }
