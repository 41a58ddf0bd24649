"""Raw Linux primitives by ctypes: prctl, namespaces, mounts, capabilities, Landlock, loading a seccomp program.

Imports neither torch nor anything of ours. Every call raises OSError with the step's name when the kernel refuses.
Sources: the man pages prctl(2), unshare(2), mount(2), capset(2), landlock(7), seccomp(2).
"""

from __future__ import annotations

import ctypes
import os
import sys

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 16384, 1 << 18
HUGE_PAGE = 2 << 20
IMPORTED_BYTES = 128 << 20  # what torch puts on the heap when it is imported, with room
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446


def _check(result: int, step: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{step}: {os.strerror(number)}")
    return result


def prctl(option: int, *arguments: int) -> int:
    """prctl(2) with up to four integer arguments."""
    values = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return _check(_libc.prctl(option, *values), f"prctl {option}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare {flags:#x}")


def gives_uids(first: int, count: int) -> bool:
    """Is this root, with so many uids from ``first`` on to give away?

    In a user namespace root may be the only one there is (`unshare --map-root-user`, some rootless containers): then it
    is an ordinary user in all that matters here.
    """
    if os.geteuid() != 0:
        return False
    try:
        with open("/proc/self/uid_map", encoding="ascii") as lines:
            spans = [tuple(map(int, line.split())) for line in lines]
    except (OSError, ValueError):
        return True
    return any(start <= first and first + count <= start + size for start, _, size in spans)


def setns(fd: int, kind: int) -> None:
    """Enter, or give children to come, the namespace that ``fd`` stands for."""
    _check(_libc.setns(fd, kind), f"setns {kind:#x}")


def huge_heap(size: int) -> None:
    """Make room for ``size`` bytes on the heap and ask for huge pages below them, before anything lies there.

    A fork then copies one entry for each 2 MiB, not one for each 4 KiB, and the end of a child is as much cheaper.
    Best effort: where the C library or the kernel will not, all stays as it was. Sources: mallopt(3), madvise(2).
    """
    trim_threshold, top_pad, huge = -1, -2, 14
    try:
        _libc.mallopt(trim_threshold, 1 << 30)  # or what is not used at once would be given back
        _libc.mallopt(top_pad, size)
        small = [ctypes.create_string_buffer(100_000) for _ in range(40)]  # the first that finds no room makes it
        with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
            line = next(line for line in maps if line.rstrip().endswith("[heap]"))
        del small
        _libc.mallopt(top_pad, 128 << 10)
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        start, end = -(-start // HUGE_PAGE) * HUGE_PAGE, end // HUGE_PAGE * HUGE_PAGE
        _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(max(0, end - start)), huge)
    except (AttributeError, OSError, StopIteration, ValueError):
        return


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _check(_libc.mount(*arguments), f"mount {kind} on {target}")


def drop_capabilities() -> None:
    """Give up every capability, for good."""
    for number in range(64):
        _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0)
    _libc.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(4), 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def load_seccomp(program: bytes) -> None:
    """Install a BPF program on this process and all it will start. Also sets no_new_privs."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    buffer = ctypes.create_string_buffer(program, len(program))
    filters = _Program(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    _check(_libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.byref(filters), 0, 0), "seccomp")


def landlock_abi() -> int:
    """Version of the kernel's Landlock, 0 when there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, _libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def landlock(read_only: list[str], writable: list[str]) -> None:
    """Allow reading below ``read_only``, everything below ``writable``, no other file; no TCP where the ABI can.

    From ABI 6 on also no signals to and no abstract sockets of processes outside.
    """
    abi = landlock_abi()
    if not abi:
        raise OSError("this kernel has no Landlock")
    newer = (1 << 14 if abi >= 3 else 0) | (1 << 15 if abi >= 5 else 0)  # truncate, ioctl
    everything = (1 << 13) - 1 | (1 << 13 if abi >= 2 else 0) | newer
    on_a_file = 0b111 | newer
    read = 0b1101  # execute, read file, read directory
    attributes = (ctypes.c_uint64 * 3)(everything, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _check(_libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0), "landlock create")
    for paths, access in ((read_only, read), (writable, everything)):
        for path in paths:
            if os.path.exists(path):
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
                rule = _PathRule(access if os.path.isdir(path) else access & on_a_file, fd)
                _check(_libc.syscall(_LANDLOCK_ADD, ruleset, 1, ctypes.byref(rule), 0), f"landlock rule for {path}")
                os.close(fd)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _check(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "landlock restrict")
    os.close(ruleset)


def descendants(pid: int) -> list[int]:
    """All processes below ``pid``, itself first, as far as /proc shows them."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                    parent = int(stat.read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            children.setdefault(parent, []).append(int(name))
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        found.append(current)
        waiting += children.get(current, [])
    return found


def address_space() -> int:
    """Bytes of address space that this process has taken; 0 where /proc does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as sizes:
            return int(sizes.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def memory(pids: list[int]) -> int:
    """Bytes of anonymous and shared memory that the processes hold in RAM."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
                for line in status:
                    if line.startswith(("RssAnon", "RssShmem")):
                        total += int(line.split()[1]) << 10
        except (OSError, ValueError, IndexError):
            continue
    return total
