package docker

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/client"

	"github.com/countersign-dev/countersign/runner"
)

// DefaultHost is where a Docker Engine of the distribution listens.
const DefaultHost = "unix:///var/run/docker.sock"

// cleanupTime bounds what is done after the caller's context has ended, so
// that a cancelled run still leaves nothing behind.
const cleanupTime = 60 * time.Second

// Config is what an Engine needs. The zero value is the local default engine.
type Config struct {
	// Host is the value of DOCKER_HOST, read by main. Default: [DefaultHost].
	// Only a Unix socket is accepted.
	Host string
	// Logger gets the warnings of the engine that do not matter to a sandbox,
	// and what could not be cleaned up. Default: none are logged.
	Logger *slog.Logger
}

// Engine is a local Docker Engine. It holds no state of a run: everything it
// knows of one is in the labels of its containers and volumes; of the engine it
// remembers for seconds what it is. It is safe for concurrent use.
type Engine struct {
	api    *client.Client
	socket string
	log    *slog.Logger
	recent recent
}

var _ runner.Engine = (*Engine)(nil)

// New returns the engine at cfg.Host without talking to it. A host that is not
// a local Unix socket is a [*runner.Unavailable]: paths and processes of
// another machine cannot be checked from here.
func New(cfg Config) (*Engine, error) {
	host := cfg.Host
	if host == "" {
		host = DefaultHost
	}
	socket, err := socketOf(host)
	if err != nil {
		return nil, err
	}
	// No client.FromEnv: the environment is read in main only, and must not be
	// able to switch the API version or the certificates.
	api, err := client.NewClientWithOpts(client.WithHost("unix://"+socket), client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, fmt.Errorf("making docker client for %s: %v", host, err)
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Engine{api: api, socket: socket, log: log}, nil
}

// Close ends idle connections to the engine.
func (e *Engine) Close() error { return e.api.Close() }

// socketOf returns the path of a host's Unix socket.
func socketOf(host string) (string, error) {
	scheme, path, found := strings.Cut(host, "://")
	switch {
	case !found:
		return "", fmt.Errorf("reading docker host %q: it has no scheme, write %s", host, DefaultHost)
	case scheme == "tcp" || scheme == "ssh" || scheme == "http" || scheme == "https":
		return "", &runner.Unavailable{
			What: fmt.Sprintf("a remote engine (%s) cannot be used", host),
			Hint: "a sandbox needs the engine of this machine: its directories and its socket are mounted. Unset DOCKER_HOST, or set it to " + DefaultHost,
		}
	case scheme == "npipe":
		return "", &runner.Unavailable{What: "an engine on Windows cannot be used", Hint: "run on Linux"}
	case scheme != "unix":
		return "", fmt.Errorf("reading docker host %q: unknown scheme, write %s", host, DefaultHost)
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("reading docker host %q: the socket's path is not absolute, write %s", host, DefaultHost)
	}
	return filepath.Clean(path), nil
}

// afterwards is a context for clearing up: it outlives ctx, but not for long.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
}
