package drill

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// meeting keeps two runs there at the same time: the one says that it is there
// and is held until the other one is done with it.
type meeting struct {
	once    [2]sync.Once
	here    chan struct{} // closed when the one is there, or will not come
	done    chan struct{} // closed when the other one needs it no more
	mu      sync.Mutex
	message string // what the one said of itself
}

func newMeeting() *meeting {
	return &meeting{here: make(chan struct{}), done: make(chan struct{})}
}

// arrive tells what the one says of itself. Only the first counts.
func (m *meeting) arrive(message string) {
	m.once[0].Do(func() {
		m.mu.Lock()
		m.message = message
		m.mu.Unlock()
		close(m.here)
	})
}

func (m *meeting) leave() { m.once[1].Do(func() { close(m.done) }) }

// end holds nobody any longer.
func (m *meeting) end() {
	m.arrive("")
	m.leave()
}

// wait is for the one; "" when it did not come.
func (m *meeting) wait() string {
	<-m.here
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.message
}

// serveLine greets, and answers each line: "here TEXT" when the other run is
// done, "wait" with that text, "done", and anything else with itself.
func (t *target) serveLine(c net.Conn) {
	io.WriteString(c, "220 drill\n")
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		answer := "250 " + word
		switch word {
		case "here":
			t.meeting.arrive(rest)
			<-t.meeting.done
		case "wait":
			answer = "250 " + t.meeting.wait()
		case "done":
			t.meeting.leave()
		}
		if _, err := fmt.Fprintln(c, answer); err != nil {
			return
		}
	}
}
