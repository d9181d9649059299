"""Tries to leave the sandbox and to read what is not its own.

Prints one JSON object on the last line: the name of each attempt and "ok" when
it succeeded, else the error. Names begin with "may" or "no". With the argument
"runsc" it leaves out what would end a sandbox of gVisor's.
"""
import ctypes, errno, glob, json, os, signal, socket, stat, subprocess, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
got = {}


def attempt(name, do):
    try:
        answer = do()
        got[name] = answer if isinstance(answer, str) else "ok"
    except OSError as e:
        got[name] = errno.errorcode.get(e.errno, str(e)) if e.errno else str(e)
    except Exception as e:
        got[name] = repr(e)


def need(condition):
    if not condition:
        raise OSError(errno.ENOENT, "not so")


def call(nr, *args):
    ctypes.set_errno(0)
    if libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args]) == -1:
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


# network: no interface but loopback, no route, no look-up leaves
attempt("no interface beside lo", lambda: need([n for _, n in socket.if_nameindex() if n != "lo"]))
attempt("no route", lambda: need(len(open("/proc/net/route").read().splitlines()) > 1))
for name in ("example.com", "canary.internal", "host.docker.internal", "metadata.google.internal", "github.com"):
    attempt("no look-up of " + name, lambda: socket.getaddrinfo(name, 443))
for host, port in (("169.254.169.254", 80), ("100.100.100.200", 80), ("172.17.0.1", 22), ("192.0.2.1", 443), ("10.0.0.1", 53), ("127.0.0.1", 2375), ("127.0.0.1", 2376)):
    attempt("no tcp %s:%d" % (host, port), lambda: dial(socket.AF_INET, socket.SOCK_STREAM, (host, port)))
    if not host.startswith("127."):
        attempt("no udp %s:%d" % (host, port), lambda: dial(socket.AF_INET, socket.SOCK_DGRAM, (host, port)))
attempt("no tcp over IPv6", lambda: dial(socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 443)))
attempt("no tcp to the metadata service over IPv6", lambda: dial(socket.AF_INET6, socket.SOCK_STREAM, ("fd00:ec2::254", 80)))
attempt("no raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("no packet socket", lambda: socket.socket(17, socket.SOCK_RAW, 3))
attempt("no ping socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1))
attempt("no vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("no kernel crypto socket", lambda: socket.socket(38, socket.SOCK_SEQPACKET))
attempt("no netfilter netlink", lambda: socket.socket(16, socket.SOCK_RAW, 12))
attempt("no multipath tcp", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))

# the engine, under any name
for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/countersign/docker.sock"):
    attempt("no engine at " + path, lambda: dial(socket.AF_UNIX, socket.SOCK_STREAM, path))


def any_engine():
    for top in ("/run", "/var/run", "/tmp", "/home", "/countersign", "/workspace", "/dev/shm", "/etc", "/opt", "/srv", "/mnt"):
        for at, _, files in os.walk(top):
            for f in files:
                p = os.path.join(at, f)
                try:
                    if stat.S_ISSOCK(os.lstat(p).st_mode):
                        dial(socket.AF_UNIX, socket.SOCK_STREAM, p)
                        return "ok"
                except OSError:
                    pass
    raise OSError(errno.ENOENT, "none")


attempt("no socket anywhere that answers", any_engine)
attempt("no second control connection", lambda: dial(socket.AF_UNIX, socket.SOCK_STREAM, "/run/countersign/control.sock"))

# identity
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
attempt("no root", lambda: need(0 in (os.getuid(), os.geteuid(), os.getgid())))
attempt("no group of root or docker", lambda: need([g for g in os.getgroups() if g != os.getgid()]))
attempt("no capability", lambda: need([k for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(status[k], 16)]))
attempt("may rely on no_new_privs", lambda: need(libc.prctl(39, 0, 0, 0, 0) == 1))
attempt("may rely on seccomp", lambda: need(status["Seccomp"].strip() == "2"))
attempt("no setuid", lambda: os.setuid(0))
attempt("no setgid", lambda: os.setgid(0))
for path in ("/usr/bin/su", "/bin/su", "/usr/bin/passwd", "/usr/bin/newgrp"):
    attempt("no privilege by " + path, lambda: need(subprocess.run([path, "-c", "id -u"], capture_output=True, timeout=5, stdin=subprocess.DEVNULL).stdout.strip() == b"0"))

# calls that the filter refuses (x86-64 numbers, skipped elsewhere)
if os.uname().machine == "x86_64":
    for name, nr, args in (
        ("ptrace", 101, (16, 1, 0, 0)), ("process_vm_readv", 310, (1, 0, 0, 0, 0, 0)), ("mount", 165, (0, 0, 0, 0, 0)),
        ("umount2", 166, (b"/proc", 2)), ("unshare user", 272, (0x10000000,)), ("unshare net", 272, (0x40000000,)), ("unshare mount", 272, (0x20000,)),
        ("setns", 308, (0, 0)), ("bpf", 321, (0, 0, 0)), ("perf_event_open", 298, (0, 0, -1, -1, 0)), ("keyctl", 250, (0, -3, 1)),
        ("io_uring_setup", 425, (1, 0)), ("userfaultfd", 323, (0,)), ("init_module", 175, (0, 0, b"")), ("kexec_load", 246, (0, 0, 0, 0)),
        ("chroot", 161, (b"/",)), ("pivot_root", 155, (b"/", b"/")), ("open_by_handle_at", 304, (0, 0, 0)), ("clone3", 435, (0, 0)),
        ("kcmp", 312, (1, 1, 0, 0, 0)), ("pidfd_getfd", 438, (0, 0, 0)), ("swapon", 167, (b"/", 0)), ("sethostname", 170, (b"x", 1)),
    ):
        attempt("no call " + name, lambda: call(nr, *args))
    attempt("no device node", lambda: os.mknod("/tmp/null", 0o600 | stat.S_IFCHR, os.makedev(1, 3)))

# files: the root is read-only, only the named roots can be written
for path in ("/", "/etc", "/usr", "/usr/local/bin", "/var", "/var/tmp", "/root", "/home", "/opt", "/run", "/countersign", "/countersign/bin", "/run/countersign", "/dev", "/sys", "/proc/sys/kernel", "/sys/fs/cgroup", "/mnt"):
    attempt("no write in " + path, create(path))
for path in ("/workspace", "/tmp", "/home/agent", "/dev/shm"):
    attempt("may write in " + path, create(path))
attempt("no remount of the root", lambda: need(subprocess.run(["mount", "-o", "remount,rw", "/"], capture_output=True).returncode == 0))
attempt("no write to the shim", lambda: open("/countersign/shim", "ab"))
attempt("no set-uid program of its own", lambda: (open("/tmp/s", "w").close(), os.chmod("/tmp/s", 0o4755), need(os.statvfs("/tmp").f_flag & os.ST_NOSUID == 0)))
attempt("no key of the host", lambda: need(glob.glob("/root/.ssh/*") + glob.glob("/home/*/.ssh/*") + glob.glob("/root/.docker/*") + glob.glob("/root/.config/*")))
attempt("no denied file of the workspace", read("/workspace/keys/deploy.pem"))
attempt("no denied file in git", lambda: need(b"deploy.pem" in subprocess.run(["git", "ls-tree", "-r", "HEAD"], capture_output=True, cwd="/workspace").stdout))
attempt("no denied directory of the image", listing("/usr/share/perl5"))
attempt("no denied file of the image", read("/etc/debian_version"))
attempt("may read the rest of the workspace", read("/workspace/keys.txt"))
attempt("may execute the workspace's scripts", lambda: need(subprocess.run(["./scripts/build.sh"], capture_output=True, cwd="/workspace").stdout == b"built\n"))
attempt("may see a clean git tree", lambda: need(subprocess.run(["git", "status", "--porcelain"], capture_output=True, cwd="/workspace").stdout == b""))
attempt("no git remote", lambda: need(subprocess.run(["git", "remote"], capture_output=True, cwd="/workspace").stdout))
attempt("no git history", lambda: need(len(subprocess.run(["git", "rev-list", "--all"], capture_output=True, cwd="/workspace").stdout.splitlines()) != 1))
for path in ("/proc/kcore", "/proc/kallsyms", "/proc/config.gz", "/proc/keys", "/proc/timer_list", "/proc/cmdline", "/sys/firmware/dmi/tables/DMI", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda"):
    attempt("no read of " + path, read(path))

# PID 1 and the host's environment
for path in ("environ", "mem", "maps", "exe", "root/etc/passwd"):
    attempt("no read of PID 1's " + path, read("/proc/1/" + path))
for path in ("fd", "cwd", "root"):
    attempt("no listing of PID 1's " + path, listing("/proc/1/" + path))
attempt("no other process", lambda: need([p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid()) and open("/proc/%s/comm" % p).read().strip() not in ("shim", "python3")]))
attempt("no variable of the host", lambda: need([k for k, v in os.environ.items() if "hunter2" in v or k in ("SUPER_SECRET", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "DOCKER_HOST", "COUNTERSIGN_STATE_DIR", "COUNTERSIGN_CONFIG_DIR")]))
attempt("may see the contract's variable", lambda: need(os.environ.get("CI") == "1"))


def survive():
    # SIGTERM and SIGINT ask the shim to end the workload, which this program
    # could do by itself: they are left out.
    for s in [s for s in range(1, 32) if s not in (signal.SIGTERM, signal.SIGINT)]:
        try:
            os.kill(1, s)
        except OSError:
            pass
    return "PID 1 is there" if os.path.exists("/proc/1/comm") else "ok"


def control_connection():
    links = [fd for fd in os.listdir("/proc/1/fd") if os.readlink("/proc/1/fd/" + fd).startswith("socket:")]
    return "ok" if [os.open("/proc/1/fd/" + fd, os.O_RDWR) for fd in links] else "none"


attempt("no opening of PID 1's connection", control_connection)
attempt("may make a thread", lambda: (threading.Thread(target=got.setdefault, args=("may be a thread", "ok")).start(), need(True)))
if sys.argv[1:] != ["runsc"]:
    attempt("no end of PID 1", survive)
print(json.dumps(got))
