package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/runner"
)

// environment is what this program reads from its environment, once.
type environment struct {
	DockerHost string // DOCKER_HOST
	StateDir   string // COUNTERSIGN_STATE_DIR
	ConfigDir  string // COUNTERSIGN_CONFIG_DIR
	Shim       string // COUNTERSIGN_SHIM
	FailPoint  string // COUNTERSIGN_FAILPOINT, for tests that kill the program at a known place
	Transport  string // COUNTERSIGN_TRANSPORT: "", direct or streamed
	// Roots are the variables that say where this machine's trusted certificates
	// are, as NAME=VALUE; the proxy trusts what the machine's programs do.
	Roots []string // SSL_CERT_FILE, SSL_CERT_DIR
}

func readEnvironment() (environment, error) {
	e := environment{
		DockerHost: os.Getenv("DOCKER_HOST"), StateDir: os.Getenv("COUNTERSIGN_STATE_DIR"), ConfigDir: os.Getenv("COUNTERSIGN_CONFIG_DIR"),
		Shim: os.Getenv("COUNTERSIGN_SHIM"), FailPoint: os.Getenv("COUNTERSIGN_FAILPOINT"), Transport: os.Getenv("COUNTERSIGN_TRANSPORT"),
	}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if value := os.Getenv(name); value != "" {
			e.Roots = append(e.Roots, name+"="+value)
		}
	}
	switch e.Transport {
	case "", runner.TransportDirect, runner.TransportStreamed:
	default:
		return e, fmt.Errorf("COUNTERSIGN_TRANSPORT is %q: want %s, %s or nothing", e.Transport, runner.TransportDirect, runner.TransportStreamed)
	}
	var err error
	if e.StateDir == "" {
		e.StateDir, err = defaultStateDir()
	}
	if err == nil && e.ConfigDir == "" {
		e.ConfigDir, err = userDir("XDG_CONFIG_HOME", ".config")
	}
	if err != nil {
		return e, err
	}
	if e.StateDir, err = filepath.Abs(e.StateDir); err != nil {
		return e, err
	}
	return e, nil
}

// defaultStateDir is where live runs have their directories. The engine must
// see it under the same path, which rules out a private /tmp.
func defaultStateDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/countersign", nil
	}
	return userDir("XDG_STATE_HOME", filepath.Join(".local", "state"))
}

func userDir(variable, fallback string) (string, error) {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "countersign"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding a directory for countersign: %v; set HOME or %s", err, variable)
	}
	return filepath.Join(home, fallback, "countersign"), nil
}

const shimName = "countersign-shim"

// findShim returns the shim's path: what the environment says, else the file
// beside this program.
func (e environment) findShim() (string, error) {
	path := e.Shim
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("finding this program: %v", err)
		}
		path = filepath.Join(filepath.Dir(self), shimName)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", &runner.Unavailable{What: "there is no shim at " + path, Hint: "run make build, or set COUNTERSIGN_SHIM to the file " + shimName}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return path, runner.CheckShim(path)
}
