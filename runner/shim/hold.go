package shim

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// Hold is the only process of a container beside the sandbox that mounts the
// same workspace volume read-only: it keeps the volume's memory alive when the
// sandbox dies, and answers Capture and Fetch in its stead. It starts no process
// and knows no job. It returns the status to exit with: 0 after a Bye.
//
// It asks for nothing of what PID 1 must be, but hardens itself as Init does.
func Hold(cfg Config) int {
	if _, err := harden(); err != nil {
		cfg.Log.Error("hardening the holder", "err", err)
		return contract.ExitFailClosed
	}
	end := make(chan struct{}, 1)
	catchSignals(func() {
		select {
		case end <- struct{}{}:
		default:
		}
	})
	conn, err := dialHost(cfg.Control, protocol.HoldSocket)
	if err != nil {
		cfg.Log.Error("reaching the supervisor", "err", err)
		return contract.ExitFailClosed
	}
	served := make(chan error, 1)
	go func() { served <- serveHold(conn) }()
	select {
	case err = <-served:
	case <-end:
		return 0 // an engine's stop; there is nothing to lose but the volume, which is the host's
	}
	if err != nil {
		cfg.Log.Error("serving the supervisor", "err", err)
		return contract.ExitFailClosed
	}
	return 0
}

func serveHold(conn *protocol.Conn) error {
	for {
		kind, payload, err := conn.Receive()
		switch {
		case err == io.EOF:
			return errors.New("the supervisor closed the control connection")
		case err != nil:
			return err
		case kind == protocol.KindBye:
			return nil
		case kind == protocol.KindCapture, kind == protocol.KindFetch:
			if err := answerFiles(context.Background(), conn, kind, payload); err != nil {
				return err
			}
		default:
			return fmt.Errorf("receiving a message: a holder does not answer %s", kind)
		}
	}
}
