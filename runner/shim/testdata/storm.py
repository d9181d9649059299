# Asks for names and opens connections as fast as it can, from one process with
# one thread, beside processes that leave the processors no rest. It prints
# "ready" when those run, and waits for its output to be read no longer.
import os, selectors, socket, struct, sys

CONNECTIONS, NAMES, PIECE = 300, 300, 1 << 17

for _ in range(12):
    if os.fork() == 0:
        while True:
            pass
print("ready", flush=True)


def query(name):
    labels = b"".join(bytes([len(l)]) + l.encode() for l in name.split("."))
    return struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"


def ask(name):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(60)
        s.connect(("127.0.0.1", 53))
        s.send(query(name))
        return socket.inet_ntoa(s.recv(512)[-4:])


addresses = [ask("n%d.example" % i) for i in range(NAMES)]

# All connections are fed and drained side by side.
request = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % PIECE + b"x" * PIECE
watch = selectors.DefaultSelector()
state = {}
for i in range(CONNECTIONS):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex((addresses[i % NAMES], 80))
    state[s] = [request, b""]
    watch.register(s, selectors.EVENT_READ | selectors.EVENT_WRITE)
answered = 0
while state:
    for key, ready in watch.select(60):
        s = key.fileobj
        if ready & selectors.EVENT_WRITE:
            n = s.send(state[s][0][:65536])
            state[s][0] = state[s][0][n:]
            if not state[s][0]:
                watch.modify(s, selectors.EVENT_READ)
        elif ready & selectors.EVENT_READ:
            got = s.recv(65536)
            state[s][1] += got
            if not got:
                answered += b"plain n" in state[s][1]
                watch.unregister(s)
                s.close()
                del state[s]
print("all answered" if answered == CONNECTIONS else "%d answered" % answered, flush=True)
