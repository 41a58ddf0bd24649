"""Drive a worker process: send a job, collect result frames as bytes, stop it in time.

One :class:`Worker` keeps one warm process, confined by the strongest backend there is, that forks a child for each
job. What comes back is parsed strictly and is only data. A worker that dies is started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from course.running import sandbox
from course.running.zygote import BOOT, HAS_FORK, WorkerFailed, Zygote, launch
from gradeworker import confine, wire
from gradeworker.answer import Job, Outcome

FRAME = struct.Struct("<Q")
CONFINED = b"\x01"  # see gradeworker.__main__
RESULT_CAP = 64 * 1024 * 1024
LOG_KEPT = 16 * 1024


@dataclass(frozen=True)
class Limits:
    """What one answer may use. Wall-clock seconds come from the exercise."""

    memory: int = 2 << 30  # resident bytes, watched every 50 ms
    address_space: int = 5 << 30  # beyond what the libraries take
    file_bytes: int = 16 << 20
    processes: int = 6  # watched every 50 ms; an answer has no use for a second one, and its neighbours want the cores
    threads: int = 32  # of its uid, processes among them; refused by the kernel past that
    open_files: int = 256


@dataclass
class Result:
    """Outcomes that arrived whole, and how the child ended."""

    outcomes: list[Outcome] = field(default_factory=list)
    ended: str = "done"  # done, timeout, memory, killed, unreadable
    log: str = ""
    seconds: float = 0.0


class Worker:
    """A warm worker process. Use as a context manager; safe for one thread at a time.

    ``slot`` tells workers of one batch apart: each gives its children another uid. ``launched`` is a process that was
    started early; ``elder`` a worker whose process this one's is forked from, if it still can be, ``twins`` how many
    such workers there are.
    """

    def __init__(self, backend: str | None = None, limits: Limits | None = None, slot: int = 0,
                 launched: Zygote | None = None, elder: Worker | None = None, twins: int = 0):
        self.limits = limits or Limits()
        self.probe = sandbox.probe(backend)
        self.slot = slot
        self._zygote: Zygote | None = None
        self._launched = launched
        self._elder, self._twins_wanted, self._twins = elder, twins, []
        self._count = 0
        self._lock = threading.Lock()
        self._starting = threading.Lock()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def backend(self) -> str:
        return self.probe.backend

    def run(self, job: Job, seconds: float) -> Result:
        """Run one job with a wall-clock limit. Raises :class:`WorkerFailed` when the worker itself fails twice."""
        with self._lock:
            if not HAS_FORK:
                return _run_once(job, seconds)
            try:
                return self._run(job, seconds)
            except (OSError, WorkerFailed):
                self.close()
            try:
                return self._run(job, seconds)
            except OSError as error:
                self.close()
                raise WorkerFailed(f"the worker process does not answer: {error}") from None
            except BaseException:
                self.close()
                raise

    @property
    def process(self) -> subprocess.Popen | None:
        """The worker's own process, while there is one."""
        return self._zygote.process if self._zygote is not None else None

    def close(self) -> None:
        """End the worker and all that it runs."""
        for zygote, at_once in ((self._launched, True), (self._zygote, False), *((twin, True) for twin in self._twins)):
            if zygote is not None:
                zygote.close(at_once)
        self._launched = self._zygote = None
        self._twins = []

    def _drop(self) -> None:
        """Let go of a process that has ended."""
        if self._zygote is not None:
            self._zygote.close(at_once=True)
            self._zygote = None

    def _start(self) -> None:
        """A process for this worker: a twin of the elder's, the one that was launched early, or a fresh one."""
        if self._elder is not None:
            elder, self._elder = self._elder, None
            self._zygote = elder._twin()
        if self._zygote is None:
            with self._starting:
                self._start_own()

    def _start_own(self) -> None:
        if self._zygote is not None:  # the first twin asked for it
            return
        zygote = self._launched or launch(self.backend)
        self._launched = None
        try:
            zygote.wait_until_ready()
            while self._twins_wanted:
                self._twins_wanted -= 1
                self._twins.append(zygote.twin())
        except BaseException:
            for each in (zygote, *self._twins):
                each.close(at_once=True)
            self._twins = []
            raise
        self._zygote = zygote

    def _twin(self) -> Zygote | None:
        """A process forked from this worker's while that was at rest; None when there is none left."""
        with self._starting:
            if self._twins_wanted and self._zygote is None:
                try:
                    self._start_own()
                except (OSError, WorkerFailed):
                    return None
            return self._twins.pop() if self._twins else None

    def _run(self, job: Job, seconds: float) -> Result:
        if self._zygote is None or not self._zygote.alive():
            self._drop()
            self._start()
        if job.kernel:
            self._zygote.load_kernels()
        self._count += 1
        name = str(self._count)
        # bubblewrap gives each answer a file system of its own: then nothing is made here, so nothing can stay.
        folder = contextlib.nullcontext("") if self.backend == "bwrap" else scratch_folder()
        with folder as scratch, tempfile.TemporaryFile() as log:
            with tempfile.TemporaryFile() as job_file:
                job_file.write(job.to_bytes())
                job_file.seek(0)
                read_end, write_end = os.pipe()
                try:
                    socket.send_fds(self._zygote.channel, [self._message(name, scratch, seconds)],
                                    [job_file.fileno(), write_end, log.fileno()])
                except BaseException:
                    os.close(read_end)
                    raise
                finally:
                    os.close(write_end)
            try:
                return self._collect(name, read_end, log, seconds)
            finally:
                os.close(read_end)

    def _message(self, name: str, scratch: str, seconds: float) -> bytes:
        limits = {
            "RLIMIT_AS": self.limits.address_space, "RLIMIT_FSIZE": self.limits.file_bytes, "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": self.limits.open_files, "RLIMIT_CPU": int(seconds) + 5, "RLIMIT_MSGQUEUE": 0,
            "RLIMIT_MEMLOCK": 1 << 20,
        }
        if self.backend == "bwrap":  # counted by uid, which only there is the answer's own
            limits["RLIMIT_NPROC"] = self.limits.threads
        return json.dumps({
            "id": name, "scratch": scratch, "uid": confine.FIRST_UID + self.slot % confine.UIDS, "limits": limits,
            "memory": self.limits.memory, "processes": self.limits.processes, "scratch_bytes": sandbox.SCRATCH_BYTES,
        }).encode()

    def _collect(self, name: str, read_end: int, log, seconds: float) -> Result:
        """Read frames until the job has ended or its time is up, then make sure that it has ended."""
        start = time.monotonic()
        status, why, data, ended, pipe_open = None, "", bytearray(), "done", True
        os.set_blocking(read_end, False)
        while status is None:
            left = start + seconds - time.monotonic()
            if left <= 0 or len(data) > RESULT_CAP:
                ended = "timeout" if left <= 0 else "killed"
                break
            readable, _, _ = select.select([self._zygote.channel, *([read_end] if pipe_open else [])], [], [], left)
            if read_end in readable:
                chunk = os.read(read_end, 1 << 20)
                data += chunk
                pipe_open = bool(chunk)
            elif self._zygote.channel in readable:
                message = self._zygote.receive(0) or {}
                if message.get("id") == name:
                    status, why = message["status"], message["why"]
        if status is None:
            why = self._end(name)
        with contextlib.suppress(BlockingIOError):  # what still lies in the pipe
            while pipe_open and len(data) <= RESULT_CAP and (chunk := os.read(read_end, 1 << 20)):
                data += chunk
        if ended == "done" and not data.startswith(CONFINED) and why not in {"memory", "processes"}:
            log.seek(0)
            raise WorkerFailed(f"the sandbox could not be set up: {clean_log(log.read(LOG_KEPT)) or 'no reason given'}")
        outcomes, whole = parse_frames(bytes(data[len(CONFINED):]))
        if ended == "done":
            ended = "memory" if why == "memory" else "killed" if status != 0 else "done" if whole else "unreadable"
        log.seek(0)
        return Result(outcomes, ended, clean_log(log.read(LOG_KEPT)), time.monotonic() - start)

    def _end(self, name: str) -> str:
        """End a job that runs on, and wait until the worker has seen it end. A worker that cannot is ended itself."""
        self._zygote.channel.send(json.dumps({"kill": name}).encode())
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            message = self._zygote.receive(deadline - time.monotonic()) or {}
            if message.get("id") == name:
                return message["why"]
        self.close()
        return ""


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for one answer; removed afterwards whatever was made in it: chains of folders, closed folders."""
    folder = tempfile.mkdtemp(prefix="course-")
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder)
        except (OSError, RecursionError):
            for command in (["chmod", "-R", "u+rwX", "--", folder], ["rm", "-rf", "--", folder]):
                subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            shutil.rmtree(folder, ignore_errors=True)


def clean_log(data: bytes) -> str:
    """What an answer wrote, as harmless text: no control characters, each line marked, so that none reads as ours."""
    text = wire.plain_text(data.decode("utf-8", "replace"), LOG_KEPT)
    return "\n".join(f"| {line[:400]}" for line in text.splitlines()[:200])


def parse_frames(data: bytes) -> tuple[list[Outcome], bool]:
    """Outcomes in ``data`` and whether all of it was well formed. Stops at the first frame that is not."""
    outcomes: list[Outcome] = []
    offset, budget = 0, wire.Budget()
    while offset < len(data):
        if len(data) - offset < FRAME.size:
            return outcomes, False
        (length,) = FRAME.unpack_from(data, offset)
        offset += FRAME.size
        if length > len(data) - offset or len(outcomes) > 4096:
            return outcomes, False
        try:
            outcomes.append(Outcome.from_bytes(data[offset : offset + length], budget))
        except wire.WireError:
            return outcomes, False
        offset += length
    return outcomes, True


def _run_once(job: Job, seconds: float) -> Result:
    """Where there is no fork: a fresh process for the job."""
    start = time.monotonic()
    with scratch_folder() as scratch:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", BOOT, sandbox.worker_path(), "--once"], input=job.to_bytes(), cwd=scratch,
                env={**os.environ, **sandbox.environment()}, capture_output=True, timeout=seconds + 30,
            )
        except subprocess.TimeoutExpired:
            return Result(ended="timeout", seconds=time.monotonic() - start)
    outcomes, whole = parse_frames(done.stdout[:RESULT_CAP])
    ended = "unreadable" if not whole else "done" if done.returncode == 0 else "killed"
    return Result(outcomes, ended, clean_log(done.stderr[:LOG_KEPT]), time.monotonic() - start)
