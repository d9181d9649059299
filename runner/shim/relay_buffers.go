package shim

import "sync"

// Sizes of buffers, in bytes: large ones move much in few calls, small ones let
// every connection of a sandbox stall at once in little memory.
const (
	largeBuffer  = 128 << 10
	smallBuffer  = 16 << 10
	largeBuffers = 32
)

// buffers lends memory to copies. At most largeBuffers large ones are out;
// whoever comes then gets a small one.
type buffers struct {
	large chan []byte
	small sync.Pool
}

func newBuffers() *buffers {
	b := &buffers{large: make(chan []byte, largeBuffers)}
	b.small.New = func() any { return new([smallBuffer]byte) }
	for range largeBuffers {
		b.large <- nil // made when it is first taken
	}
	return b
}

func (b *buffers) take() []byte {
	select {
	case buf := <-b.large:
		if buf == nil {
			buf = make([]byte, largeBuffer)
		}
		return buf
	default:
		return b.small.Get().(*[smallBuffer]byte)[:]
	}
}

func (b *buffers) put(buf []byte) {
	if len(buf) == largeBuffer {
		b.large <- buf
		return
	}
	b.small.Put((*[smallBuffer]byte)(buf))
}
