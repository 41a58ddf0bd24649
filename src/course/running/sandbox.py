"""Which walls stand between an answer and this machine: `probe()` tries them and picks the strongest that works.

    bwrap      bubblewrap container, namespaces, seccomp, own uid: nothing of the machine is in sight
    landlock   no namespaces needed: file rules, seccomp, rlimits on an ordinary process
    none       a separate process with limits; results are advisory
"""

from __future__ import annotations

import base64
import errno
import functools
import importlib.util
import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import gradeworker
from gradeworker import confine, linux

SCRATCH_BYTES = 64 << 20
BACKENDS = ("bwrap", "landlock", "none")
# Packages that know what is expected, or could be used to look it up.
HIDDEN = ("course", "llm_internals", "transformers", "tokenizers", "tiktoken", "quicktok")
UBUNTU_HINT = (
    "on Ubuntu 23.10 and later: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, "
    "or an AppArmor profile that allows user namespaces to bwrap"
)

# What no answer needs and an escape might: other processes, namespaces, mounts, the kernel, memory without a file.
DENIED_CALLS = (
    "memfd_create", "memfd_secret", "shmget", "shmat", "shmctl", "msgget", "semget", "mq_open", "ptrace",
    "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd", "mount", "umount2",
    "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsmount", "fsconfig", "fspick", "mount_setattr",
    "unshare", "setns", "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "kexec_load", "kexec_file_load", "init_module",
    "finit_module", "delete_module", "swapon", "swapoff", "reboot", "acct", "quotactl", "open_by_handle_at",
    "name_to_handle_at", "fanotify_init", "lookup_dcookie", "settimeofday", "clock_settime", "personality",
    "sched_setattr", "setpriority", "ioprio_set", "vhangup", "sethostname", "setdomainname", "iopl", "ioperm",
    "modify_ldt",
)


@dataclass(frozen=True)
class Probe:
    """The strongest backend that works here, and why the stronger ones do not."""

    backend: str
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """For reports."""
        return {
            "bwrap": "bubblewrap, namespaces, seccomp",
            "landlock": "Landlock, seccomp, no namespaces",
            "none": "advisory, not sandboxed",
        }[self.backend]


@functools.cache
def seccomp_program() -> bytes:
    """The BPF program: the calls above fail with EPERM, sockets exist only between processes of the sandbox.

    Raises OSError when libseccomp is not installed.
    """
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise OSError(f"libseccomp is not usable ({error}): apt install libseccomp2") from None
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    refuse = pyseccomp.ERRNO(errno.EPERM)
    for name in DENIED_CALLS:
        try:
            rules.add_rule(refuse, name)
        except (OSError, RuntimeError, ValueError):
            continue  # a call this architecture or library does not have
    # clone3 hides its flags behind a pointer; without it libc uses clone, whose flags can be read.
    rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    for flag in (linux.CLONE_NEWNS, linux.CLONE_NEWCGROUP, linux.CLONE_NEWUTS, linux.CLONE_NEWIPC, linux.CLONE_NEWUSER,
                 linux.CLONE_NEWPID, linux.CLONE_NEWNET):
        rules.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    not_unix = pyseccomp.Arg(0, pyseccomp.NE, 1)
    rules.add_rule(pyseccomp.ERRNO(errno.EAFNOSUPPORT), "socket", not_unix)
    rules.add_rule(refuse, "ioctl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, 0xFFFFFFFF, 0x5412))  # TIOCSTI
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def confinement(backend: str) -> dict:
    """What the worker is told about how to confine its children."""
    if backend == "none":
        return {"backend": "none"}
    program = base64.b64encode(seccomp_program()).decode()
    readable = ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/null", "/dev/urandom", *_worker_sources(),
                *python_folders()]
    return {"backend": backend, "seccomp": program, "read_only": readable if backend == "landlock" else []}


def environment() -> dict[str, str]:
    """The worker's whole environment: nothing of ours passes through."""
    values = {
        "PATH": "/usr/bin:/bin", "HOME": "/scratch", "TMPDIR": "/scratch", "LANG": "C.UTF-8", "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "0", "TORCH_COMPILE_DISABLE": "1",
        "TRITON_INTERPRET": "1", "TRITON_CACHE_DIR": "/scratch/.triton",
    }
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "SYSTEMROOT"):
        if name in os.environ:
            values[name] = os.environ[name]
    return values


def python_folders() -> list[str]:
    """Folders that hold this Python, its standard library and its packages; none inside another."""
    real = Path(os.path.realpath(sys.executable)).parents[1]
    found = {sys.prefix, sys.base_prefix, str(real), *site.getsitepackages()}
    found = {path for path in found if path not in {"/", "/usr"} and not path.startswith("/usr/")}
    return sorted(p for p in found if not any(p != other and p.startswith(other + "/") for other in found))


def _worker_sources() -> list[str]:
    """The folders of gradeworker and, where it is installed, kernelcheck."""
    folders = [str(Path(gradeworker.__file__).resolve().parent)]
    spec = importlib.util.find_spec("kernelcheck")
    if spec is not None and spec.origin:
        folders.append(str(Path(spec.origin).resolve().parent))
    return folders


def _hidden_folders(bound: list[str]) -> list[str]:
    """Folders of packages that must not be seen although they lie below one that is bound."""
    found = []
    for name in HIDDEN:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin and spec.origin.endswith("__init__.py"):
            folder = str(Path(spec.origin).resolve().parent)
            if any(folder.startswith(path + "/") for path in bound):
                found.append(folder)
    return found


def bwrap_command(command: list[str]) -> list[str]:
    """The command inside a container: system and Python read-only, no network, no home, nothing else."""
    arguments = [
        "bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
        "--die-with-parent", "--new-session", "--hostname", "grade", "--clearenv",
    ]
    if confine.has_root():
        # Root keeps just what the zygote needs to give each child namespaces and a uid of its own.
        arguments += ["--cap-drop", "ALL"]
        for capability in ("SETUID", "SETGID", "SYS_ADMIN", "KILL", "SETPCAP", "SYS_RESOURCE"):
            arguments += ["--cap-add", f"CAP_{capability}"]
    else:
        arguments += ["--unshare-user", "--cap-drop", "ALL"]
        if os.geteuid() == 0:  # of a user namespace; a namespace below may hold uid 0 only by a right that is dropped
            arguments += ["--uid", str(confine.FIRST_UID), "--gid", str(confine.FIRST_UID)]
    for name, value in environment().items():
        arguments += ["--setenv", name, value]
    arguments += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib64", "lib32"):
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    for path in ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"):
        arguments += ["--ro-bind-try", path, path]
    arguments += ["--dev", "/dev", "--proc", "/proc"]
    writable = ("/dev/shm", "/tmp", "/scratch")
    for path in writable:  # before the binds: an environment may lie below /tmp
        arguments += ["--size", str(SCRATCH_BYTES), "--perms", "1777", "--tmpfs", path]
    binds = [*python_folders(), *_worker_sources()]
    binds = [path for path in binds if not any(path.startswith(other + "/") for other in binds)]
    for path in binds:
        arguments += [*_parents(path, binds), "--ro-bind", path, path]
    for path in _hidden_folders(binds):
        arguments += ["--size", "4096", "--perms", "0555", "--tmpfs", path, "--remount-ro", path]
    for path in (*writable, "/dev", "/"):
        arguments += ["--remount-ro", path]
    return [*arguments, "--chdir", "/", "--", *command]


def _parents(path: str, binds: list[str]) -> list[str]:
    """Make the folders above a bind readable: bubblewrap would make them for their owner only."""
    steps: list[str] = []
    for folder in reversed(Path(path).parents[:-1]):
        name = str(folder)
        if name not in {"/tmp", "/usr"} and not any(name == b or name.startswith(b + "/") for b in binds):
            steps += ["--perms", "0755", "--dir", name]
    return steps


@functools.cache
def probe(wanted: str | None = None) -> Probe:
    """Try the backends, strongest first. ``wanted``: start with this one (tests, `--backend`)."""
    notes: list[str] = []
    for backend in BACKENDS[BACKENDS.index(wanted or "bwrap") :]:
        problem = _try(backend)
        if problem is None:
            return Probe(backend, tuple(notes))
        notes.append(f"{backend}: {problem}")
    raise AssertionError("the backend none always works")


def _try(backend: str) -> str | None:
    """None when the backend works here, else the reason in words."""
    if backend == "none":
        return None
    if sys.platform != "linux":
        return "needs Linux"
    try:
        seccomp_program()
    except OSError as error:
        return str(error)
    if backend == "landlock":
        return None if linux.landlock_abi() else "this kernel has no Landlock"
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed: apt install bubblewrap"
    inner = ("import json, sys; sys.path[:0] = [sys.argv[1]]; from gradeworker import confine; "
             f"confine.rehearse(json.loads(sys.argv[2]), {SCRATCH_BYTES})")
    command = bwrap_command([sys.executable, "-I", "-c", inner, worker_path(), json.dumps(confinement(backend))])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return said + (f"; {UBUNTU_HINT}" if "uid map" in said or "ermission" in said or "not permitted" in said else "")


def worker_path() -> str:
    """The folder that gradeworker is imported from."""
    return str(Path(gradeworker.__file__).resolve().parents[1])
