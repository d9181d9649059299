package protocol

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Streams of an Output message.
const (
	Stdout byte = 1
	Stderr byte = 2
)

// name is what errors call a kind, "" for one that does not exist.
func (k Kind) name() string {
	switch k {
	case KindLoad:
		return "load"
	case KindNetwork:
		return "network"
	case KindProbe:
		return "probe"
	case KindStart:
		return "start"
	case KindStop:
		return "stop"
	case KindCapture:
		return "capture"
	case KindFetch:
		return "fetch"
	case KindBye:
		return "bye"
	case KindHello:
		return "hello"
	case KindLoaded:
		return "loaded"
	case KindNetworked:
		return "networked"
	case KindProbed:
		return "probed"
	case KindStarted:
		return "started"
	case KindOutput:
		return "output"
	case KindExited:
		return "exited"
	case KindCaptured:
		return "captured"
	case KindFailed:
		return "failed"
	case KindData:
		return "data"
	}
	return ""
}

func (k Kind) known() bool { return k.name() != "" }

// String names the kind for a person.
func (k Kind) String() string {
	if name := k.name(); name != "" {
		return name
	}
	return fmt.Sprintf("unknown (%#02x)", byte(k))
}

// SendOutput sends what a workload wrote to Stdout or Stderr.
func (c *Conn) SendOutput(stream byte, data []byte) error {
	return c.SendBytes(KindOutput, []byte{stream}, data)
}

// ParseOutput splits the payload of an Output message.
func ParseOutput(payload []byte) (stream byte, data []byte, err error) {
	if len(payload) == 0 || (payload[0] != Stdout && payload[0] != Stderr) {
		return 0, nil, errors.New("receiving output message: it names neither stdout nor stderr")
	}
	return payload[0], payload[1:], nil
}

// Validate says why a job cannot be sent or started: an empty argv, a relative
// working directory, an environment entry without a name, a NUL byte or text
// that is not UTF-8 (the encoding would change it silently), no timeout, a
// secret file without a safe name of its own. Neither values of the environment
// nor secrets appear in the error.
func (j Job) Validate() error {
	if len(j.Argv) == 0 || j.Argv[0] == "" {
		return errors.New("checking job: argv is empty; name a program to run")
	}
	for i, arg := range j.Argv {
		if err := checkText(arg); err != nil {
			return fmt.Errorf("checking job: argument %d %v", i, err)
		}
	}
	seen := make(map[string]bool, len(j.Env))
	for i, entry := range j.Env {
		name, _, found := strings.Cut(entry, "=")
		if !found || name == "" {
			return fmt.Errorf("checking job: environment entry %d is not NAME=VALUE", i)
		}
		if err := checkText(entry); err != nil {
			return fmt.Errorf("checking job: environment entry %d %v", i, err)
		}
		if seen[name] {
			return fmt.Errorf("checking job: environment variable %q is set twice", name)
		}
		seen[name] = true
	}
	if err := checkText(j.Cwd); err != nil || !strings.HasPrefix(j.Cwd, "/") {
		return fmt.Errorf("checking job: working directory %q is not an absolute path", j.Cwd)
	}
	if j.Stop.TimeoutSec <= 0 || j.Stop.GraceSec < 0 {
		return errors.New("checking job: its stop rule has no timeout, or a negative time")
	}
	return checkSecrets(j.Secrets)
}

func checkSecrets(secrets []SecretFile) error {
	seen := make(map[string]bool, len(secrets))
	for _, s := range secrets {
		if err := contract.CheckName(s.Name); err != nil {
			return fmt.Errorf("checking job: the name of a secret file %v", err)
		}
		if seen[s.Name] {
			return fmt.Errorf("checking job: secret file %q is there twice", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}

// Validate says why a Network cannot be sent or opened: a port out of range.
func (n Network) Validate() error {
	for _, p := range n.Ports {
		if p < 1 || p > 65535 {
			return fmt.Errorf("checking network: %d is not a port", p)
		}
	}
	return nil
}

func checkText(s string) error {
	if strings.IndexByte(s, 0) >= 0 {
		return errors.New("holds a NUL byte")
	}
	if !utf8.ValidString(s) {
		return errors.New("is not UTF-8")
	}
	return nil
}
