package drill

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
)

// planted is what lies on the host for a workload to find, and must not be
// found.
type planted struct {
	tag     string
	home    string   // home directory of the process that asks for runs
	secrets []string // the planted values: "drill-secret-" and 32 hexadecimal digits
	spelled [][]byte // the same, also in base64 and hexadecimal
	env     []string // of the asking process
	files   []string // host paths, below home
	tmp     string   // a file in the host's temporary directory
	denied  string   // the value in a denied file of the repository

	listeners [][2]any // host and port, as inside.py takes them
	abstract  string   // name of an abstract Unix socket
	closers   []io.Closer
	requests  atomic.Int64

	way *wayOut
}

// secretHome are the files of a home directory that people keep secrets in.
var secretHome = []string{
	".ssh/id_ed25519", ".aws/credentials", ".docker/config.json", ".netrc", ".git-credentials", ".bash_history",
	".config/gh/hosts.yml", ".npmrc", ".cache/pip/token", ".gnupg/private-keys-v1.d/key",
}

func plant(c Config) (p *planted, err error) {
	p = &planted{home: filepath.Join(c.Dir, "home"), tmp: filepath.Join(c.Dir, "host-file")}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	tag, err := random(c.Rand, 8)
	if err != nil {
		return p, err
	}
	p.tag = "tag-" + tag
	value := func() string {
		v, readErr := random(c.Rand, 16)
		if readErr != nil {
			err = readErr
		}
		v = "drill-secret-" + v
		p.secrets = append(p.secrets, v)
		p.spelled = append(p.spelled, []byte(v), []byte(base64.StdEncoding.EncodeToString([]byte(v))), []byte(hex.EncodeToString([]byte(v))))
		return v
	}
	p.denied = value()
	p.env = []string{"SUPER_SECRET=" + value(), "AWS_SECRET_ACCESS_KEY=" + value(), "SSH_AUTH_SOCK=" + filepath.Join(p.home, "agent.sock")}
	for _, name := range secretHome {
		path := filepath.Join(p.home, name)
		p.files = append(p.files, path)
		if err := write(path, value()); err != nil {
			return p, err
		}
	}
	if err := write(p.tmp, value()); err != nil {
		return p, err
	}
	key, file, other := value(), value(), value()
	if err != nil {
		return p, fmt.Errorf("planting secrets: %v", err)
	}
	if err := p.listen(); err != nil {
		return p, err
	}
	p.way, err = openWayOut(c, key, file, other)
	p.closers = append(p.closers, p.way)
	return p, err
}

func random(r io.Reader, n int) (string, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return "", fmt.Errorf("reading randomness: %v", err)
	}
	return hex.EncodeToString(b), nil
}

// write makes a file that anybody may read: a workload that reaches it must not
// be kept from it by its mode.
func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("planting a secret: %v", err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
		return fmt.Errorf("planting a secret: %v", err)
	}
	return nil
}

// repository is the one commit that every work starts from.
func (p *planted) repository() map[string]string {
	return map[string]string{
		"inside.py": program, "egress.py": egressProgram, "keys/deploy.pem": p.denied + "\n", "keys.txt": "public\n", "scripts/build.sh": "#!/bin/sh\necho built\n",
	}
}

// listen opens what a workload might reach if it had a way to the host: HTTP on
// loopback and, where there is one, on the engine's bridge; and a Unix socket
// with an abstract name, which belongs to a network namespace.
func (p *planted) listen() error {
	for _, host := range []string{"127.0.0.1", bridge()} {
		if host == "" {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return fmt.Errorf("opening the drill's listener: %v", err)
		}
		p.listeners = append(p.listeners, [2]any{host, l.Addr().(*net.TCPAddr).Port})
		p.serve(l)
	}
	p.abstract = "countersign-drill-" + p.tag
	l, err := net.Listen("unix", "@"+p.abstract)
	if err != nil {
		return fmt.Errorf("opening the drill's abstract socket: %v", err)
	}
	p.serve(l)
	return nil
}

func (p *planted) serve(l net.Listener) {
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "touch /tmp/drill-download-ran\n")
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				p.requests.Add(1)
			}
		},
	}
	p.closers = append(p.closers, s)
	go s.Serve(l)
}

// hits counts the connections that reached the host.
func (p *planted) hits() int64 { return p.requests.Load() }

func (p *planted) close() {
	for _, c := range p.closers {
		c.Close()
	}
}

// bridge is the host's address on Docker's default bridge, "" without one.
func bridge() string {
	i, err := net.InterfaceByName("docker0")
	if err != nil {
		return ""
	}
	addrs, err := i.Addrs()
	if err != nil {
		return ""
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return ""
}
