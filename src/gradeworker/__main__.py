"""The worker process: imports torch once, then forks a confined child for each job.

Speaks to its parent over one Unix socket (descriptor in argv[1]; argv[2] says how to confine, as JSON). A message
is JSON ``{"id", "scratch", "uid", "limits", "memory", "processes"}`` with three descriptors: job bytes to read,
result frames to write, log to write; or ``{"kill": id}``; or ``{"kernels": true}``: import Triton for jobs to come; or
``{"twin": true}`` with a socket, on which a fork of this process then serves. Answers: ``{"ready": pid}`` and, when a
job has ended, ``{"id", "status", "why"}``. Where there is no fork (Windows) the parent starts ``--once``: job on stdin,
frames on stdout. Results begin with one byte that says that the child is confined; each frame of a result is ``<Q``
length and the bytes of an Outcome.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
from dataclasses import dataclass

from gradeworker import confine, linux
from gradeworker.confine import Confinement

FRAME = struct.Struct("<Q")
CONFINED = b"\x01"  # the first byte that comes: the sandbox stands, and from here on the answer may be to blame
WATCH_SECONDS = 0.05
# The course knows the expected values and so has no business here. A courtesy to the learner, not the wall.
BLOCKED = ("course", "llm_internals", "transformers", "tokenizers", "tiktoken", "quicktok")


class _Blocked:
    """An import hook that hides packages an answer has no business with."""

    def find_spec(self, name: str, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is not available to an answer", name=name)
        return None


def serve_job(job_fd: int, result_fd: int) -> None:
    """Run the job read from ``job_fd``; write one frame per outcome to ``result_fd``."""
    from gradeworker.answer import Job, run

    with os.fdopen(job_fd, "rb") as stream:
        job = Job.from_bytes(stream.read())
    with os.fdopen(result_fd, "wb", buffering=1 << 16) as stream:  # the parent need not wake for every frame
        for outcome in run(job):
            data = outcome.to_bytes()
            stream.write(FRAME.pack(len(data)) + data)


@dataclass
class _Child:
    """A job that runs: its outermost process and what it may use."""

    id: str
    memory: int
    processes: int
    why: str = ""


class Zygote:
    """Holds the imported libraries and forks."""

    def __init__(self, channel: socket.socket, confinement: Confinement):
        self.channel = channel
        self.confinement = confinement
        self.children: dict[int, _Child] = {}
        self.twins: set[int] = set()
        self.own_memory = self.own_space = 0

    def serve(self) -> None:
        """Accept jobs until the parent closes the channel; then end all that still runs."""
        linux_here = sys.platform == "linux"
        gc.collect()
        gc.freeze()
        gc.enable()
        woken = self._begin()
        while True:
            wait = WATCH_SECONDS if self.children else None
            readable, _, _ = select.select([self.channel, woken], [], [], wait)
            if woken in readable:
                os.read(woken, 4096)
            if self.channel in readable and not self._receive():
                break
            self._reap()
            if linux_here:
                self._watch()
        for pid in list(self.children):
            _kill_tree(pid)

    def _begin(self) -> int:
        """Settle in this process and greet the parent. Returns a descriptor that is readable when a child has ended."""
        if sys.platform == "linux":
            linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
            self._measure()
        woken = _wake_when_a_child_ends()
        self.channel.send(json.dumps({"ready": os.getpid()}).encode())
        return woken

    def _measure(self) -> None:
        """What the libraries take by themselves, which is not the answer's: torch with CUDA six times as much space."""
        self.own_memory, self.own_space = linux.memory([os.getpid()]), linux.address_space()

    def _load_kernels(self) -> None:
        """Import Triton with its repaired interpreter, at rest, and settle again."""
        _install_kernelcheck()
        _only_thread(self.confinement)
        gc.collect()
        gc.freeze()
        if sys.platform == "linux":
            self._measure()
        self.channel.send(json.dumps({"ready": os.getpid()}).encode())

    def _become_twin(self, fd: int) -> None:
        """In a fork of this process: serve another channel, as if started for it. Never returns."""
        code = 97
        try:
            self.channel.close()
            os.setsid()
            Zygote(socket.socket(fileno=fd), self.confinement).serve()
            code = 0
        finally:
            os._exit(code)

    def _receive(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self.channel, 1 << 16, 3)
        if not data:
            return False
        message = json.loads(data)
        if "kernels" in message:
            self._load_kernels()
            return True
        if "kill" in message:
            for pid, child in self.children.items():
                if child.id == message["kill"]:
                    _kill_tree(pid)
            return True
        once = "twin" not in message and self.confinement.backend == "bwrap" and confine.has_root()
        pid = confine.fork_as_process_1() if once else os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if "twin" in message:
                self._become_twin(fds[0])
            self.channel.close()
            message["limits"]["RLIMIT_AS"] += self.own_space
            _outer(message, fds, self.confinement)
        for fd in fds:
            os.close(fd)
        if "twin" in message:
            self.twins.add(pid)
            return True
        self.children[pid] = _Child(message["id"], message["memory"], message["processes"])
        return True

    def _reap(self) -> None:
        """Collect what has ended. A process that is none of our children was left behind by an answer: end it."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            self.twins.discard(pid)
            child = self.children.pop(pid, None)
            if child is not None:
                self._end_orphans()
                message = {"id": child.id, "status": os.waitstatus_to_exitcode(status), "why": child.why}
                with contextlib.suppress(OSError):
                    self.channel.send(json.dumps(message).encode())

    def _end_orphans(self) -> None:
        if sys.platform != "linux":
            return
        # Looked at in this order, so that what a child or a twin starts meanwhile is not taken for an orphan.
        everybody = linux.descendants(os.getpid())
        mine = {pid for known in (*self.children, *self.twins) for pid in linux.descendants(known)} | {os.getpid()}
        for pid in everybody:
            if pid not in mine:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _watch(self) -> None:
        """End a job that holds more memory or processes than it may."""
        for pid, child in self.children.items():
            family = linux.descendants(pid)
            # Every process of the family shares the zygote's own pages, which /proc counts for each.
            if linux.memory(family) - len(family) * self.own_memory > child.memory:
                child.why = "memory"
            elif len(family) > child.processes:
                child.why = "processes"
            if child.why:
                _kill_tree(pid)


def _wake_when_a_child_ends() -> int:
    """A descriptor that becomes readable whenever a child has ended, so that nobody waits for the next look."""
    woken, waker = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    return woken


def _kill_tree(pid: int) -> None:
    family = linux.descendants(pid) if sys.platform == "linux" else [pid]
    for member in reversed(family):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _outer(message: dict, fds: list[int], confinement: Confinement) -> None:
    """In the forked child: own session and descriptors, confinement, then the answer. Never returns."""
    code = 97
    try:
        os.setsid()
        job, result = _arrange(fds)
        if confinement.backend == "bwrap":
            confine.enter_namespaces(pid=not confine.has_root())
            if not confine.has_root():
                _wait_for_inner((0, 1, 2, job, result))
            confine.confine_inner(confinement, message["uid"], message["limits"], message["scratch_bytes"])
            os.chdir(confine.SCRATCH)
        elif confinement.backend == "landlock":
            os.chdir(message["scratch"])
            confine.confine_landlock(confinement, message["scratch"], message["limits"])
        else:
            os.chdir(message["scratch"])
            confine.set_limits(message["limits"])
        code = 98
        os.write(result, CONFINED)
        serve_job(job, result)
        sys.stdout.flush()
        code = 0
    except BaseException as error:
        with contextlib.suppress(BaseException):
            os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    os._exit(code)


def _wait_for_inner(fds: tuple[int, ...]) -> None:
    """Fork the process that goes on, as process 1 of the new PID namespace; this one only waits for it and ends."""
    inner = os.fork()
    if inner:
        for fd in fds:
            os.close(fd)
        _, status = os.waitpid(inner, 0)
        os._exit(min(255, abs(os.waitstatus_to_exitcode(status))))


def _arrange(fds: list[int]) -> tuple[int, int]:
    """Put job and result on 3 and 4, the log on 1 and 2, nothing on 0, and close all other descriptors."""
    import fcntl

    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in fds]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(high[2], 1)
    os.dup2(high[2], 2)
    os.dup2(high[0], 3)
    os.dup2(high[1], 4)
    os.closerange(5, 4096)
    return 3, 4


def _install_kernelcheck() -> None:
    with contextlib.suppress(ImportError):  # no Triton here: kernel exercises say so themselves
        import kernelcheck

        kernelcheck.install()


def _only_thread(confinement: Confinement) -> None:
    if confinement.backend == "bwrap" and len(os.listdir("/proc/self/task")) != 1:
        raise SystemExit("a zygote must have one thread only, or its children cannot be trusted to run")


def _warm_up(torch) -> None:
    """Let libraries read what they read once (/proc/cpuinfo, lazy modules), while it can still be read."""
    x = torch.ones(8, 8)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        y = x.to(dtype)
        (y @ y).exp().float().softmax(-1)
    torch.nn.functional.silu(x).sort()
    torch.Generator().manual_seed(0)
    from gradeworker import namespace
    from gradeworker.answer import Job, run

    for name in ("math", "torch", "torch.nn", "torch.nn.functional", "numpy", "numpy.random"):
        namespace.window(name)  # what an answer is shown of them is looked up once
    job = Job("warm.up", "f", "def f(x):\n    return x + 1", prelude="import math\nimport torch\n", cases=[((x,), {})])
    for outcome in run(Job.from_bytes(job.to_bytes())):
        outcome.to_bytes()


def main() -> None:
    gc.disable()  # imports make many objects and no garbage; `serve` turns it on again
    if sys.platform == "linux":
        linux.huge_heap(linux.IMPORTED_BYTES)
    import numpy  # noqa: F401
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    _warm_up(torch)
    sys.meta_path.insert(0, _Blocked())
    if sys.argv[1] == "--once":
        gc.enable()
        _install_kernelcheck()
        result = os.dup(1)
        os.dup2(2, 1)
        serve_job(0, result)
        return
    confinement = Confinement.from_json(json.loads(sys.argv[2]))
    _only_thread(confinement)
    Zygote(socket.socket(fileno=int(sys.argv[1])), confinement).serve()
    os._exit(0)  # all it started has ended; taking torch apart would only keep the parent waiting


if __name__ == "__main__":
    main()
