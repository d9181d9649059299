package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"

	"github.com/docker/docker/client"

	"github.com/countersign-dev/countersign/runner"
)

// reach connects to the socket once, because the client's own words for a
// failed connection do not tell "not installed" from "not allowed".
func (e *Engine) reach(ctx context.Context) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", e.socket)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("connecting to the engine: %w", ctx.Err())
		}
		return unreachable(err, e.socket)
	}
	return conn.Close()
}

// explain replaces the client's error for a lost connection by ours; other
// errors stay as they are.
func (e *Engine) explain(err error) error {
	if !client.IsErrConnectionFailed(err) {
		return err
	}
	return unreachable(err, e.socket)
}

// unreachable says why a socket could not be connected to, and what to do.
func unreachable(err error, socket string) *runner.Unavailable {
	what := fmt.Sprintf("no Docker Engine answers on %s", socket)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return &runner.Unavailable{
			What: fmt.Sprintf("permission denied on Docker's socket %s", socket),
			Hint: "run as root, or join the group docker and log in again (sudo usermod -aG docker $USER); that group is as powerful as root",
		}
	case errors.Is(err, fs.ErrNotExist):
		return &runner.Unavailable{
			What: what + " (there is no such socket)",
			Hint: "install Docker Engine (Debian, Ubuntu: apt-get install docker.io) and start it (systemctl start docker), or set DOCKER_HOST to its socket",
		}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &runner.Unavailable{What: what + " (nobody listens there)", Hint: "start it: systemctl start docker"}
	}
	return &runner.Unavailable{What: fmt.Sprintf("%s (%v)", what, err), Hint: "start it: systemctl start docker"}
}
