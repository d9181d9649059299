package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
)

// relay copies between connections and nothing else: what one hop costs at
// least. Of each LISTEN=DIAL both are NETWORK:ADDRESS. How is loop, which reads
// and writes in turn as a program without privileges of the kernel's must, or
// splice, which leaves it to io.Copy.
func relay(how string, hops []string) error {
	faults := make(chan error)
	for _, hop := range hops {
		listen, dial, _ := strings.Cut(hop, "=")
		network, addr, _ := strings.Cut(listen, ":")
		l, err := net.Listen(network, addr)
		if err != nil {
			return err
		}
		defer l.Close()
		if network == "unix" {
			if err := os.Chmod(addr, 0o666); err != nil { // the container has a uid of its own
				return err
			}
		}
		go func() { faults <- relayFrom(l, dial, how) }()
	}
	return <-faults
}

func relayFrom(l net.Listener, dial, how string) error {
	network, addr, _ := strings.Cut(dial, ":")
	for {
		near, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer near.Close()
			far, err := net.Dial(network, addr)
			if err != nil {
				fmt.Fprintf(os.Stderr, "bench relay: %v\n", err)
				return
			}
			defer far.Close()
			var both sync.WaitGroup
			both.Go(func() { pass(far, near, how) })
			both.Go(func() { pass(near, far, how) })
			both.Wait()
		}()
	}
}

// pass copies until from ends and then ends to. Faults show as missing bytes.
func pass(to, from net.Conn, how string) {
	defer to.(interface{ CloseWrite() error }).CloseWrite()
	if how == "splice" {
		io.Copy(to, from)
		return
	}
	buf := make([]byte, pieceBytes)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
