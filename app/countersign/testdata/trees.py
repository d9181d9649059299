"""Leaves one kind of hostile tree in the workspace.

trees.py KIND PROGRAM: PROGRAM is a path of the host that must never run.
"""
import os, shutil, socket, stat, subprocess, sys

kind, trap = sys.argv[1:3]


def write(path, text, mode=None):
    if os.path.dirname(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(text if isinstance(text, bytes) else text.encode())
    if mode is not None:
        os.chmod(path, mode)


CONFIG = """[core]
\tfsmonitor = {0}
\thooksPath = /tmp
\tsshCommand = {0}
\tpager = {0}
\teditor = {0}
\tattributesFile = /workspace/.attributes
\tworktree = /
[diff]
\texternal = {0}
[diff "evil"]
\ttextconv = {0}
\tcommand = {0}
[filter "evil"]
\tclean = {0}
\tsmudge = {0}
\tprocess = {0}
\trequired = true
[merge "evil"]
\tdriver = {0}
[credential]
\thelper = {0}
[gpg]
\tprogram = {0}
[alias]
\tdiff-tree = !{0}
[include]
\tpath = /etc/passwd
[uploadpack]
\tpackObjectsHook = {0}
[remote "origin"]
\turl = ext::{0}
\tuploadpack = {0}
"""


def git_config():
    write(".git/config", CONFIG.format(trap))
    write(".git/info/attributes", "* filter=evil diff=evil merge=evil\n")


def git_hooks():
    names = ["applypatch-msg", "post-applypatch", "pre-applypatch", "post-checkout", "post-index-change", "pre-commit", "reference-transaction",
             "fsmonitor-watchman", "pre-auto-gc", "post-rewrite", "update", "pre-receive", "post-receive", "proc-receive", "sendemail-validate"]
    for n in names:
        write(".git/hooks/" + n, "#!/bin/sh\nexec %s %s\n" % (trap, n), 0o755)


def git_redirects():
    write(".git/commondir", "../../../../../../tmp\n")
    write(".git/gitdir", "/root/.git\n")
    write(".git/config.worktree", CONFIG.format(trap))
    write(".git/config", "[extensions]\n\tworktreeConfig = true\n[core]\n\tworktree = /etc\n")
    write(".git/objects/info/alternates", "/root\n/etc\n")
    write(".git/worktrees/w/gitdir", "/etc/.git\n")
    write(".git/shallow", "0" * 40 + "\n")


def git_file():
    shutil.rmtree(".git")
    write(".git", "gitdir: /root/.git\n")


def git_symlink():
    shutil.rmtree(".git")
    os.symlink("/etc", ".git")


def git_gone():
    shutil.rmtree(".git")
    write("file", "changed\n")


def attributes():
    write(".gitattributes", "* filter=evil diff=evil merge=evil text eol=crlf working-tree-encoding=UTF-16 ident\n*.x filter=lfs\n")
    write(".git/config", CONFIG.format(trap))
    write("file", "changed\n")
    write("a.x", "a\n")


def nested():
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", "nested"]
    os.mkdir("nested")
    subprocess.run(git + ["init", "-q"], check=True)
    write("nested/file", "in a nested repository\n")
    subprocess.run(git + ["add", "-A"], check=True)
    subprocess.run(git + ["commit", "-qm", "nested"], check=True)
    write("nested/.git/config", CONFIG.format(trap))
    write("tracked/.git", "gitdir: ../nested/.git\n")


def submodules():
    write(".git/config", "[submodule \"s\"]\n\turl = ext::%s\n\tupdate = !%s\n" % (trap, trap))
    os.symlink("/etc/passwd", ".gitmodules")


def links_out():
    for name, target in (("shadow", "/etc/shadow"), ("up", "../../../../../../etc/passwd"), ("procroot", "/proc/self/root/etc/passwd"), ("fd", "/proc/self/fd/0"),
                         ("proc1", "/proc/1/environ"), ("dirlink", "/etc"), ("dev", "/dev/zero"), ("self", "self"), ("long", "x" * 4000)):
        os.symlink(target, name)
    shutil.rmtree("tracked")
    os.symlink("/root", "tracked")


def hard_links():
    write("one", "one and two\n")
    os.link("one", "two")
    for outside in ("/etc/passwd", "/countersign/shim", "/proc/1/comm", "/tmp/outside"):
        try:
            if outside.startswith("/tmp"):
                write(outside, "root: outside\n")
            os.link(outside, "linked")
            print("linked", outside)
            sys.exit(1)
        except OSError:
            pass


def specials():
    os.mkfifo("fifo")
    s = socket.socket(socket.AF_UNIX)
    s.bind("socket")
    for mode in (stat.S_IFCHR, stat.S_IFBLK):
        try:
            os.mknod("device", mode | 0o666, os.makedev(1, 5))
            print("made a device")
            sys.exit(1)
        except PermissionError:
            pass


def setuid():
    for name, mode in (("setuid", 0o4755), ("setgid", 0o2755), ("sticky", 0o1755)):
        write(name, "#!/bin/sh\nid\n", mode)


def sparse():
    with open("giant", "wb") as f:
        try:
            f.truncate(1 << 40)
        except OSError:  # past the limit of a file's size
            f.truncate(64 << 20)
    with open("giant", "ab") as f:
        f.truncate((64 << 20))
    # within the file limit, and one byte more than the disk with the next
    write("tail", "x")
    with open("giant", "r+b") as f:
        f.truncate(64 << 20)


def sparse_many():
    for i in range(40):
        with open("sparse%02d" % i, "wb") as f:
            f.truncate(8 << 20)


def deep():
    write("shallow", "shallow\n")
    here = os.open(".", os.O_RDONLY)
    for i in range(1500):  # of 200 bytes each: far beyond PATH_MAX
        name = "d" * 200
        os.mkdir(name, dir_fd=here)
        down = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = down
    f = os.open("leaf", os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.write(f, b"leaf\n")


def names():
    for name in (b"new\nline", b"esc\x1b[31mred", b"\xff\xfe", b" ", b"...", b"..\\up", b"Twin", b"twin", b"-rf", b"--output=x", b"a\tb", b"quote\"", b"$(touch x)",
                 b"diff --git a b", b".git\xe2\x80\x8c", b"GIT~1", b".GIT", b"n" * 255, b"\xc3\xa9", b"e\xcc\x81"):
        write(name if isinstance(name, str) else name.decode("utf-8", "surrogateescape"), "x\n")


def ignored():
    write(".gitignore", "kept\n!build/\n")
    write("build/out", "out\n")
    write("kept", "kept\n")


def unreadable():
    os.chmod("locked", 0)
    os.chmod("closed", 0)


globals()[kind]()
