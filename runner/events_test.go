package runner

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// What a child sends arrives piece by piece, and a stream that breaks off or is
// none has no report.
func TestEvents(t *testing.T) {
	var wire bytes.Buffer
	w := newEventWriter(&wire)
	large := strings.Repeat("x", 1<<20)
	for _, err := range []error{w.send(1, []byte("out")), w.send(2, nil), w.send(2, []byte(large)), w.report(Report{Cut: 7})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	collect := func(fd int, p []byte) { got = append(got, fmt.Sprint(fd, string(p))) }
	report, err := newEventReader(bytes.NewReader(wire.Bytes())).report(collect)
	if err != nil || report.Cut != 7 || len(got) != 3 || got[0] != "1out" && got[0] != "1 out" || !strings.HasSuffix(got[2], large) {
		t.Errorf("%v, %+v, %d pieces", err, report, len(got))
	}
	nothing := func(int, []byte) {}
	for n := range []int{0, 1, 4, 5, 6, 20} {
		if _, err := newEventReader(bytes.NewReader(wire.Bytes()[:n])).report(nothing); !errors.Is(err, ErrSupervisorLost) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	for _, bad := range []string{"{\"fd\":1}\n", "\x01\xff\xff\xff\xffx", "R\x00\x00\x00\x01{", "\x03\x00\x00\x00\x00"} {
		if _, err := newEventReader(strings.NewReader(bad)).report(nothing); !errors.Is(err, ErrSupervisorLost) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	wire.Reset()
	w.send(eventError, []byte("no engine"))
	if _, err := newEventReader(&wire).report(nothing); err == nil || err.Error() != "no engine" {
		t.Errorf("error: %v", err)
	}
	if err := w.send(1, make([]byte, maxEvent+1)); err == nil {
		t.Error("an event without a bound was sent")
	}
}
