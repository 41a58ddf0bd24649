"""Confine a forked child before it runs an answer, by one of three backends.

bwrap       the zygote already lives in a bubblewrap container without network, home or the course's sources; each
            child gets mount, pid, ipc, net and uts namespaces of its own, a small private /scratch, its own uid, no
            capabilities, rlimits and seccomp
landlock    no namespaces: Landlock rules, rlimits and seccomp on an ordinary process
none        rlimits only; where there is nothing better (macOS)
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
from dataclasses import dataclass, field

from gradeworker import linux

SCRATCH = "/scratch"
FIRST_UID, UIDS = 20_000, 1000  # of answers, where root grades
NAMESPACES = linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWIPC | linux.CLONE_NEWNET | linux.CLONE_NEWUTS


@dataclass(frozen=True)
class Confinement:
    """How children are confined; comes from the trusted side when the worker starts."""

    backend: str = "none"
    seccomp: bytes = b""
    read_only: tuple[str, ...] = field(default_factory=tuple)  # Landlock: what may be read

    @classmethod
    def from_json(cls, data: dict) -> Confinement:
        program = base64.b64decode(data.get("seccomp", ""))
        return cls(data.get("backend", "none"), program, tuple(data.get("read_only", ())))


def has_root() -> bool:
    """Is this root who can give each answer a uid of its own? Else answers get a user namespace each.

    Root's zygote forks an answer into a PID namespace at once; a user namespace would change the zygote itself, so
    that there a process stands between the two.
    """
    return linux.gives_uids(FIRST_UID, UIDS)


def fork_as_process_1() -> int:
    """Fork a child that is process 1 of a new PID namespace. Returns its pid here, 0 in the child."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        linux.unshare(linux.CLONE_NEWPID)  # of children to come; this process stays where it is
        pid = os.fork()
        if pid:
            linux.setns(own, linux.CLONE_NEWPID)
        return pid
    finally:
        os.close(own)


def enter_namespaces(pid: bool = True) -> None:
    """New namespaces for this process, and (``pid``) a PID namespace for its children.

    An ordinary user needs a user namespace for that.
    """
    if has_root():
        linux.unshare(NAMESPACES if pid else NAMESPACES & ~linux.CLONE_NEWPID)
        return
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER | NAMESPACES)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def confine_inner(confinement: Confinement, uid: int, limits: dict[str, int], scratch_bytes: int) -> None:
    """In the child, process 1 of its own namespace: private files, no rights, limits, seccomp."""
    root = has_root()  # asked while /proc is there
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    for target, size in ((SCRATCH, scratch_bytes), ("/dev/shm", scratch_bytes // 4)):
        linux.mount("tmpfs", target, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV,
                    f"size={size},nr_inodes=4096,mode=1777")
    _own_proc()
    if root:
        _become(uid)
    linux.drop_capabilities()
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    set_limits(limits)
    linux.load_seccomp(confinement.seccomp)


def rehearse(data: dict, scratch_bytes: int) -> None:
    """In a process that may end: confine a child as an answer's is. Raises OSError when a step is refused."""
    root = has_root()
    read_end, write_end = os.pipe()
    if not root:
        enter_namespaces()
    pid = fork_as_process_1() if root else os.fork()
    if pid == 0:
        said = b""
        try:
            if root:
                enter_namespaces(pid=False)
            confine_inner(Confinement.from_json(data), FIRST_UID, {}, scratch_bytes)
        except BaseException as error:
            said = f"{type(error).__name__}: {error}".encode()
        finally:
            os.write(write_end, said)
            os._exit(0)
    os.close(write_end)
    said = os.read(read_end, 1000).decode(errors="replace")
    _, status = os.waitpid(pid, 0)
    if said or status:
        raise OSError(said or f"it ended with status {os.waitstatus_to_exitcode(status)}")


def confine_landlock(confinement: Confinement, scratch: str, limits: dict[str, int]) -> None:
    """Without namespaces: only the scratch folder and what Python needs; never another process of this user."""
    if os.geteuid() == 0:
        linux.drop_capabilities()
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    set_limits(limits)
    linux.landlock(list(confinement.read_only), [scratch, "/dev/null"])
    linux.load_seccomp(confinement.seccomp)


def set_limits(limits: dict[str, int]) -> None:
    """rlimits by name; one that this system does not know or allow is left out."""
    import resource

    for name, value in limits.items():
        kind = getattr(resource, name, None)
        if kind is not None:
            with contextlib.suppress(ValueError, OSError):
                hard = resource.getrlimit(kind)[1]
                value = value if hard == resource.RLIM_INFINITY else min(value, hard)
                resource.setrlimit(kind, (value, value))


def _own_proc() -> None:
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    try:
        linux.mount("proc", "/proc", "proc", flags)
    except OSError:  # some containers forbid it; then none at all
        linux.mount("tmpfs", "/proc", "tmpfs", flags, "size=4k")


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
