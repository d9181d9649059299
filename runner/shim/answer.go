package shim

import (
	"context"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// messageBound keeps the text of a Failed within a frame; a path may be long.
const messageBound = 8 << 10

// reply decodes a message into m, does what it asks, and answers.
func reply(c *protocol.Conn, kind protocol.Kind, payload []byte, m any, with protocol.Kind, do func() (any, error)) error {
	if err := protocol.Decode(payload, m); err != nil {
		return err
	}
	got, err := do()
	if err != nil {
		return sendFailed(c, kind, err)
	}
	return c.Send(with, got)
}

// answerFiles answers Capture and Fetch, which Init and Hold have in common.
func answerFiles(ctx context.Context, c *protocol.Conn, kind protocol.Kind, payload []byte) error {
	do := capture
	if kind == protocol.KindFetch {
		do = fetch
	}
	var m protocol.Capture
	return reply(c, kind, payload, &m, protocol.KindCaptured, func() (any, error) {
		return do(ctx, c, m)
	})
}

func sendFailed(c *protocol.Conn, op protocol.Kind, err error) error {
	text := err.Error()
	return c.Send(protocol.KindFailed, protocol.Failed{Op: op.String(), Message: text[:min(len(text), messageBound)]})
}
