package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	pieceBytes   = 128 << 10 // of every copy of the bench
	messageBytes = 256       // of an echoed request
	clientCalls  = "orders\n"
)

// order is what the bench has a client do. Every path to the servers is driven
// by the same client.
type order struct {
	Kind        string // down, up, echo, setup, get or put
	Addr        string // HOST:PORT to connect to
	Proxy       string // HOST:PORT of a proxy that is asked by CONNECT; "" is none
	Host        string // of get and put: the server's name
	HTTP2       bool
	Bytes       int64
	Connections int
	Requests    int // on each connection
}

// result answers an order.
type result struct {
	Seconds  float64
	P50, P99 float64 // of the requests, microseconds
	Error    string
}

// traffic is what this program does inside of a container.
func traffic(args []string) int {
	var err error
	switch {
	case len(args) == 2 && args[0] == "client":
		err = client(args[1])
	case len(args) >= 3 && args[0] == "relay":
		err = relay(args[1], args[2:])
	default:
		err = errors.New("want client ADDR, or relay loop|splice LISTEN=DIAL and further ones")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench traffic: %v\n", err)
		return 1
	}
	return 0
}

// client takes orders from the bench at addr until that ends.
func client(addr string) error {
	c, err := dialUntil(addr, 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, clientCalls); err != nil {
		return err
	}
	in, out := json.NewDecoder(c), json.NewEncoder(c)
	for {
		var o order
		if err := in.Decode(&o); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		r, err := perform(o)
		if err != nil {
			r.Error = fmt.Sprintf("%s: %v", o.Kind, err)
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

// dialUntil waits for a relay that is being started beside it.
func dialUntil(addr string, bound time.Duration) (net.Conn, error) {
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil || time.Since(begun) > bound {
			return c, err
		}
	}
}

func perform(o order) (result, error) {
	switch o.Kind {
	case "down", "up":
		return transfer(o)
	case "echo":
		return echo(o)
	case "setup":
		return setUp(o)
	case "get", "put":
		return request(o)
	}
	return result{}, errors.New("an unknown order")
}

// connect makes a connection to the raw server.
func connect(o order) (net.Conn, error) {
	if o.Proxy == "" {
		return net.Dial("tcp", o.Addr)
	}
	c, err := net.Dial("tcp", o.Proxy)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.Addr, o.Addr)
	var head []byte
	for b := make([]byte, 1); !strings.HasSuffix(string(head), "\r\n\r\n"); head = append(head, b[0]) {
		if _, err := io.ReadFull(c, b); err != nil {
			c.Close()
			return nil, fmt.Errorf("asking the proxy: %v", err)
		}
	}
	if line, _, _ := strings.Cut(string(head), "\r\n"); !strings.Contains(line, " 200 ") {
		c.Close()
		return nil, fmt.Errorf("the proxy answered %q", line)
	}
	return c, nil
}

// transfer times bytes one way, from the order to the last byte's arrival.
func transfer(o order) (result, error) {
	begun := time.Now()
	c, err := connect(o)
	if err != nil {
		return result{}, err
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, o.Kind, o.Bytes); err != nil {
		return result{}, err
	}
	if o.Kind == "down" {
		err = drain(c, o.Bytes)
	} else if err = pour(c, o.Bytes); err == nil {
		err = drain(c, 1)
	}
	return result{Seconds: time.Since(begun).Seconds()}, err
}

// drain reads n bytes.
func drain(r io.Reader, n int64) error {
	buf := make([]byte, pieceBytes)
	for n > 0 {
		got, err := r.Read(buf[:min(n, pieceBytes)])
		if n -= int64(got); err != nil && n > 0 {
			return fmt.Errorf("%d bytes before the end: %w", n, err)
		}
	}
	return nil
}

// pour writes n bytes.
func pour(w io.Writer, n int64) error {
	buf := make([]byte, pieceBytes)
	for ; n > 0; n -= min(n, pieceBytes) {
		if _, err := w.Write(buf[:min(n, pieceBytes)]); err != nil {
			return err
		}
	}
	return nil
}

// echo times requests on kept connections, each of which sends its next one when
// it has the answer to the one before.
func echo(o order) (result, error) {
	conns := make([]net.Conn, o.Connections)
	for i := range conns {
		c, err := openEcho(o)
		if err != nil {
			return result{}, err
		}
		defer c.Close()
		conns[i] = c
	}
	took, faults := make([][]float64, len(conns)), make([]error, len(conns))
	var all sync.WaitGroup
	begun := time.Now()
	for i, c := range conns {
		all.Go(func() { took[i], faults[i] = exchanges(c, o.Requests) })
	}
	all.Wait()
	r := quantiles(slices.Concat(took...))
	r.Seconds = time.Since(begun).Seconds()
	return r, errors.Join(faults...)
}

// openEcho makes a connection whose first request was answered.
func openEcho(o order) (net.Conn, error) {
	c, err := connect(o)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(c, "echo", messageBytes)
	if err == nil {
		_, err = exchanges(c, 1)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// exchanges returns the microseconds of each of n requests.
func exchanges(c net.Conn, n int) ([]float64, error) {
	took := make([]float64, n)
	buf := make([]byte, messageBytes)
	for i := range took {
		begun := time.Now()
		if _, err := c.Write(buf); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			return nil, err
		}
		took[i] = micro(time.Since(begun))
	}
	return took, nil
}

// setUp times connections one after the other, each to its first answer.
func setUp(o order) (result, error) {
	took := make([]float64, o.Requests)
	for i := range took {
		begun := time.Now()
		c, err := openEcho(o)
		if err != nil {
			return result{}, err
		}
		took[i] = micro(time.Since(begun))
		c.Close()
	}
	return quantiles(took), nil
}

// request times one HTTPS request with a large body one way.
func request(o order) (result, error) {
	dialer := net.Dialer{}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, o.Addr)
		},
		DisableCompression: true, ForceAttemptHTTP2: o.HTTP2, WriteBufferSize: pieceBytes, ReadBufferSize: pieceBytes,
	}
	if !o.HTTP2 {
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	defer t.CloseIdleConnections()
	begun := time.Now()
	q, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://%s/%d", o.Host, o.Bytes), nil)
	if err == nil && o.Kind == "put" {
		q, err = http.NewRequest(http.MethodPut, q.URL.String(), io.LimitReader(zeros{}, o.Bytes))
		q.ContentLength = o.Bytes
	}
	if err != nil {
		return result{}, err
	}
	a, err := t.RoundTrip(q)
	if err != nil {
		return result{}, err
	}
	defer a.Body.Close()
	if want := map[bool]int{false: 1, true: 2}[o.HTTP2]; a.StatusCode != http.StatusOK || a.ProtoMajor != want {
		text, _ := bufio.NewReader(a.Body).ReadString('\n')
		return result{}, fmt.Errorf("%s, %s: %s", a.Status, a.Proto, text)
	}
	if o.Kind == "get" {
		err = drain(a.Body, o.Bytes)
	}
	return result{Seconds: time.Since(begun).Seconds()}, err
}

// zeros is a body without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func quantiles(took []float64) result {
	if len(took) == 0 {
		return result{}
	}
	slices.Sort(took)
	return result{P50: took[len(took)/2], P99: took[len(took)*99/100]}
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
