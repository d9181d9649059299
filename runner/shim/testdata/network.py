# Runs inside a sandbox that has a way out. It tries what programs do and prints
# one JSON object: what was tried, and in a few words what came of it.
import errno, json, os, socket, struct, subprocess, sys

results = {}


def attempt(label):
    def run(f):
        try:
            results[label] = f()
        except OSError as e:
            results[label] = errno.errorcode.get(e.errno, str(e)) if e.errno else str(e)
        except Exception as e:
            results[label] = "%s: %s" % (type(e).__name__, e)
    return run


def program(label, *argv, env=None):
    @attempt(label)
    def _():
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd="/tmp", env={**os.environ, **(env or {})})
        return (done.stdout + done.stderr).strip()


def query(name, kind, edns=False):
    labels = b"".join(bytes([len(l)]) + l for l in name.encode("latin-1").split(b"."))
    opt = b"\0\0\x29\x04\xd0\0\0\0\0\0\0" if edns else b""
    return struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 1 if edns else 0) + labels + b"\0" + struct.pack(">HH", kind, 1) + opt


def read(answer):
    code, _, answers, _, extra = struct.unpack(">HHHHH", answer[2:12])
    address = socket.inet_ntoa(answer[-4:]) if answers and not extra else ""
    return code & 15, answers, extra, address


def udp(name, kind=1, edns=False):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(20)
        s.connect(("127.0.0.1", 53))
        s.send(query(name, kind, edns))
        return read(s.recv(2048))


def tcp(*names):
    with socket.create_connection(("127.0.0.1", 53), timeout=20) as s:
        f, out = s.makefile("rb"), []
        for name in names:
            q = query(name, 1)
            s.sendall(struct.pack(">H", len(q)) + q)
            out.append(read(f.read(struct.unpack(">H", f.read(2))[0])))
        return out


def connect(host, port, timeout=20):
    with socket.create_connection((host, port), timeout=timeout) as s:
        return "connected"


@attempt("resolv.conf")
def _():
    lines = open("/etc/resolv.conf").read().splitlines()
    return [l for l in lines if l and not l.startswith("#")]


attempt("secret file")(lambda: [oct(os.stat("/run/secret/key").st_mode & 0o777), open("/run/secret/key").read()])

# Programs, none of which is told of a proxy.
program("curl", "curl", "-sS", "http://plain.example/a")
program("curl TLS", "curl", "-sS", "https://secure.example/b")
program("curl refused", "curl", "-sS", "http://refused.example/c")
program("curl explicit", "curl", "-sS", "-x", "http://127.0.0.1:3128", "http://explicit.example/d")
program("curl explicit TLS", "curl", "-sS", "-x", "http://127.0.0.1:3128", "https://secure.example/e")
program("python", sys.executable, "-c", "import urllib.request as u; print(u.urlopen('https://py.example/f').read().decode())")
program("node", "node", "-e", "fetch('https://node.example/g').then(r => r.text()).then(t => console.log(t))")
program("node address", "node", "-e", "require('net').connect(80, '192.0.2.1').on('error', e => console.log(e.code))")
program("git", "git", "ls-remote", "https://missing.example/x.git")
program("go", "go", "mod", "download", "-json", "x.example/m@v1.0.0",
        env={"GOPROXY": "https://missing.goproxy.example", "GONOSUMDB": "*", "GOPATH": "/tmp/go", "GOCACHE": "/tmp/gc", "GOFLAGS": "-mod=mod"})
program("getent", "getent", "ahosts", "localhost.example")
program("getent bad", "getent", "ahosts", "exa_mple..com")

# Names.
attempt("UDP")(lambda: udp("one.example"))
attempt("again, in capitals")(lambda: udp("ONE.example") == udp("one.example"))
attempt("EDNS")(lambda: udp("one.example", edns=True)[:3])
attempt("AAAA")(lambda: udp("one.example", 28)[:3])
attempt("a foreign byte")(lambda: udp("o e.example")[:3])
attempt("TCP")(lambda: tcp("one.example", "two.example"))
attempt("reverse")(lambda: socket.gethostbyaddr(udp("one.example")[3])[0])
attempt("own name")(lambda: socket.gethostbyname(socket.gethostname()))

# Connections.
attempt("server first")(lambda: socket.create_connection(("ssh.example", 22), 20).makefile().readline().strip())
attempt("a rule's port")(lambda: connect("rule.example", 5432))
attempt("another port")(lambda: connect("rule.example", 5433))
attempt("an address never given")(lambda: connect("127.127.127.127", 443))
for label, address in {"address": "192.0.2.1", "metadata": "169.254.169.254", "private": "10.0.0.1"}.items():
    attempt(label)(lambda: connect(address, 443))
attempt("IPv6 address")(lambda: connect("2001:db8::1", 443))


@attempt("ports of its own")
def _():
    listening = []
    for port in (80, 443, 8080):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", port))
        s.listen()
        listening.append(s)
    return connect("127.0.0.1", 443)


@attempt("a server at every address")
def _():
    with socket.create_server(("", 8080)), socket.create_server(("::", 8443), family=socket.AF_INET6, dualstack_ipv6=True):
        return connect("127.0.0.1", 8080)


@attempt("200 at once")
def _():
    open_ = [socket.create_connection(("many.example", 80), 60) for _ in range(200)]
    for s in open_:
        s.sendall(b"GET /h HTTP/1.1\r\nHost: many.example\r\nConnection: close\r\n\r\n")
    return sum(s.makefile("rb").read().endswith(b"plain many.example:80/h") for s in open_)


# A flood of names reaches its bound, and what was named before goes on.
@attempt("flood")
def _():
    codes = [udp("n%d.flood.example" % i)[0] for i in range(1100)]
    given = codes.index(2) if 2 in codes else len(codes)
    return given > 500 and set(codes[:given]) == {0} and set(codes[given:]) == {2}


program("over the bound", "curl", "-sS", "http://late.example/")
program("known before", "curl", "-sS", "http://plain.example/i")
print(json.dumps(results))
