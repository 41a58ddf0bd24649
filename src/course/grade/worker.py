"""Drive a worker process: send a job, collect result frames as bytes, stop it in time.

One :class:`Worker` keeps one warm process that forks a child for each job. What comes back is parsed strictly and
is only data. A worker that dies is started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import gradeworker
from gradeworker import wire
from gradeworker.answer import Job, Outcome

FRAME = struct.Struct("<Q")
RESULT_CAP = 64 * 1024 * 1024
LOG_KEPT = 16 * 1024
START_SECONDS = 120.0
HAS_FORK = hasattr(os, "fork") and hasattr(socket, "send_fds")

_BOOT = (
    "import sys; sys.path[:0] = [sys.argv.pop(1)]; import runpy; "
    "sys.argv[0] = 'gradeworker'; runpy.run_module('gradeworker', run_name='__main__')"
)


class WorkerFailed(RuntimeError):
    """The worker process could not be used; says nothing about the answer."""


@dataclass
class Result:
    """Outcomes that arrived whole, and how the child ended."""

    outcomes: list[Outcome] = field(default_factory=list)
    ended: str = "done"  # done, timeout, killed, unreadable
    log: str = ""
    seconds: float = 0.0


class Worker:
    """A warm worker process. Use as a context manager; safe for one thread at a time."""

    def __init__(self, memory_bytes: int = 4 << 30):
        self.limits = {"RLIMIT_AS": memory_bytes, "RLIMIT_FSIZE": 64 << 20, "RLIMIT_CORE": 0, "RLIMIT_NOFILE": 256}
        self._process: subprocess.Popen | None = None
        self._channel: socket.socket | None = None
        self._count = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
                    raise WorkerFailed(f"the worker process does not answer: {error}") from None

    def close(self) -> None:
        """End the worker and all that it runs."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = self._channel = None

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, _packages(), str(theirs.fileno())],
                pass_fds=[theirs.fileno()], env=_clean_environment(), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )
        finally:
            theirs.close()
        self._channel = ours
        if "ready" not in (self._receive(START_SECONDS) or {}):
            self.close()
            raise WorkerFailed("the worker process did not start; `course doctor` says what is missing")

    def _receive(self, seconds: float) -> dict | None:
        """The next message, or None when time is up. Raises WorkerFailed when the worker has gone."""
        readable, _, _ = select.select([self._channel], [], [], max(0.0, seconds))
        if not readable:
            return None
        data = self._channel.recv(1 << 16)
        if not data:
            raise WorkerFailed("the worker process ended")
        return json.loads(data)

    def _run(self, job: Job, seconds: float) -> Result:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        self._count += 1
        name = f"{self._count}"
        with tempfile.TemporaryDirectory(prefix="course-") as scratch, tempfile.TemporaryFile() as log:
            job_file = Path(scratch, "job")
            job_file.write_bytes(job.to_bytes())
            job_fd = os.open(job_file, os.O_RDONLY)
            job_file.unlink()
            read_end, write_end = os.pipe()
            try:
                limits = {**self.limits, "RLIMIT_CPU": int(seconds) + 2}
                message = json.dumps({"id": name, "scratch": scratch, "limits": limits}).encode()
                socket.send_fds(self._channel, [message], [job_fd, write_end, log.fileno()])
            finally:
                os.close(job_fd)
                os.close(write_end)
            try:
                return self._collect(name, read_end, log, seconds)
            finally:
                os.close(read_end)

    def _collect(self, name: str, read_end: int, log, seconds: float) -> Result:
        """Read frames until the child closes its pipe or time is up, then make sure that it has ended."""
        start = time.monotonic()
        pid, status, data, ended = None, None, bytearray(), "done"
        os.set_blocking(read_end, False)
        open_pipe = True
        while open_pipe or status is None:
            left = start + seconds - time.monotonic()
            if left <= 0 or len(data) > RESULT_CAP:
                ended = "timeout" if left <= 0 else "killed"
                break
            watched = [self._channel] + ([read_end] if open_pipe else [])
            readable, _, _ = select.select(watched, [], [], left)
            if read_end in readable:
                chunk = os.read(read_end, 1 << 20)
                data += chunk
                open_pipe = bool(chunk)
            if self._channel in readable:
                message = self._receive(0) or {}
                if message.get("id") == name:
                    pid = message.get("pid", pid)
                    status = message.get("status", status)
                    if status is not None and open_pipe:
                        # The child is gone; whatever still holds the pipe is none of our business.
                        with contextlib.suppress(BlockingIOError):
                            while chunk := os.read(read_end, 1 << 20):
                                data += chunk
                        open_pipe = False
        if status is None:
            self._kill(name, pid)
        elif pid is not None:
            _kill_group(pid)  # a daemon the answer left behind
        outcomes, whole = parse_frames(bytes(data))
        if ended == "done" and not whole:
            ended = "unreadable"
        elif ended == "done" and status != 0:
            ended = "killed"
        log.seek(0)
        return Result(outcomes, ended, log.read(LOG_KEPT).decode("utf-8", "replace"), time.monotonic() - start)

    def _kill(self, name: str, pid: int | None) -> None:
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if pid is not None:
                _kill_group(pid)
            message = self._receive(0.2) or {}
            if message.get("id") == name:
                pid = message.get("pid", pid)
                if "status" in message:
                    return
        self.close()


def parse_frames(data: bytes) -> tuple[list[Outcome], bool]:
    """Outcomes in ``data`` and whether all of it was well formed. Stops at the first frame that is not."""
    outcomes: list[Outcome] = []
    offset = 0
    while offset < len(data):
        if len(data) - offset < FRAME.size:
            return outcomes, False
        (length,) = FRAME.unpack_from(data, offset)
        offset += FRAME.size
        if length > len(data) - offset or len(outcomes) > 4096:
            return outcomes, False
        try:
            outcomes.append(Outcome.from_bytes(data[offset : offset + length]))
        except wire.WireError:
            return outcomes, False
        offset += length
    return outcomes, True


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _packages() -> str:
    return str(Path(gradeworker.__file__).resolve().parents[1])


def _clean_environment() -> dict[str, str]:
    keep = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "VIRTUAL_ENV",
            "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {name: os.environ[name] for name in keep if name in os.environ} | threads


def _run_once(job: Job, seconds: float) -> Result:
    """Where there is no fork: a fresh process for the job."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="course-") as scratch:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", _BOOT, _packages(), "--once"], input=job.to_bytes(), cwd=scratch,
                env=_clean_environment(), capture_output=True, timeout=seconds + 30,
            )
        except subprocess.TimeoutExpired:
            return Result(ended="timeout", seconds=time.monotonic() - start)
    outcomes, whole = parse_frames(done.stdout[:RESULT_CAP])
    ended = "unreadable" if not whole else "done" if done.returncode == 0 else "killed"
    return Result(outcomes, ended, done.stderr[:LOG_KEPT].decode("utf-8", "replace"), time.monotonic() - start)
