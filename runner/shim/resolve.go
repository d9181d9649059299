package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Statuses of a workload that was never started, as env(1), timeout(1) and
// shells have them; every other fault is contract.ExitFailClosed.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// notStarted says why a workload was never started, and its status.
type notStarted struct {
	code int
	why  string
}

func (e *notStarted) Error() string { return e.why }

func refuse(code int, format string, args ...any) error {
	return &notStarted{code: code, why: fmt.Sprintf(format, args...)}
}

// resolve finds the program that name means for a job: a name with a slash is a
// path, relative to dir; any other is looked up in the absolute directories of
// PATH in env. Relative and empty entries of PATH are passed over, so that a file
// of the workspace never shadows a program.
func resolve(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return path, executable(path, name)
	}
	var denied error
	list := lookup(env, "PATH")
	for _, d := range filepath.SplitList(list) {
		if !filepath.IsAbs(d) {
			continue
		}
		path := filepath.Join(d, name)
		err := executable(path, path)
		if err == nil {
			return path, nil
		}
		var no *notStarted
		if errors.As(err, &no) && no.code == exitNotExecutable && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	if list == "" {
		return "", refuse(exitNotFound, "program %q cannot be looked up: the job sets no PATH; name it by its path", name)
	}
	return "", refuse(exitNotFound, "program %q is in no directory of PATH (%s); is it in the image?", name, list)
}

// executable refuses what execve(2) would, and a directory in clearer words.
func executable(path, name string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		return refuse(exitNotFound, "program %q does not exist in the sandbox", name)
	case err != nil:
		return refuse(exitNotExecutable, "program %q cannot be used: %v", name, err)
	case info.IsDir():
		return refuse(exitNotExecutable, "program %q is a directory", name)
	case !info.Mode().IsRegular():
		return refuse(exitNotExecutable, "program %q is not a regular file", name)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return refuse(exitNotExecutable, "program %q is not executable; give its mode an x bit", name)
	}
	return nil
}

// execFault says what an error of fork and exec means for a checked program.
func execFault(err error, name string) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return refuse(exitNotFound, "program %q needs an interpreter that is not in the sandbox", name)
	case errors.Is(err, unix.ENOEXEC):
		return refuse(exitNotExecutable, "program %q is neither a binary for this machine nor a script with a #! line", name)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.ETXTBSY), errors.Is(err, unix.ELIBBAD), errors.Is(err, unix.ELOOP):
		return refuse(exitNotExecutable, "program %q cannot be executed: %v", name, err)
	case errors.Is(err, unix.E2BIG):
		return refuse(exitNotExecutable, "program %q cannot be executed: its arguments and environment are too long together", name)
	}
	return refuse(contract.ExitFailClosed, "starting program %q: %v", name, err)
}

// lookup returns the value of a variable in env, "" when it is not there.
func lookup(env []string, name string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}
