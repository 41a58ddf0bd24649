"""Start the process that answers are forked from.

This module imports nothing slow, so that a command can start the process first and import its own libraries meanwhile
(:func:`importing`).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from course.running import sandbox
from gradeworker import linux

HAS_FORK = hasattr(os, "fork") and hasattr(socket, "send_fds")
START_SECONDS = 120.0
BOOT = (
    "import sys; sys.path[:0] = [sys.argv.pop(1)]; import runpy; "
    "sys.argv[0] = 'gradeworker'; runpy.run_module('gradeworker', run_name='__main__')"
)


class WorkerFailed(RuntimeError):
    """The worker process could not be used; says nothing about the answer."""


@dataclass
class Zygote:
    """A running worker process and the socket to it. A twin was forked from another one, which owns the process."""

    backend: str
    channel: socket.socket
    process: subprocess.Popen | None = None
    knows_kernels: bool = False

    def alive(self) -> bool:
        """Is the process there? Of a twin that is only seen when it is spoken to."""
        return self.process is None or self.process.poll() is None

    def receive(self, seconds: float) -> dict | None:
        """The next message, or None when time is up. Raises WorkerFailed when the process has gone."""
        readable, _, _ = select.select([self.channel], [], [], max(0.0, seconds))
        if not readable:
            return None
        data = self.channel.recv(1 << 16)
        if not data:
            raise WorkerFailed("the worker process ended")
        return json.loads(data)

    def wait_until_ready(self) -> None:
        """Raises WorkerFailed when it does not come up."""
        if "ready" not in (self.receive(START_SECONDS) or {}):
            raise WorkerFailed("the worker process did not start; `course doctor` says what is missing")

    def load_kernels(self) -> None:
        """Have Triton imported, if it is not yet; a class without kernels need not wait for it."""
        if not self.knows_kernels:
            self.channel.send(json.dumps({"kernels": True}).encode())
            self.wait_until_ready()
            self.knows_kernels = True

    def twin(self) -> Zygote:
        """Another worker process, forked from this one, which must be ready and at rest."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self.channel, [json.dumps({"twin": True}).encode()], [theirs.fileno()])
        made = Zygote(self.backend, ours)
        made.wait_until_ready()
        return made

    def close(self, at_once: bool = False) -> None:
        """End the process and all that it runs. ``at_once``: do not wait until it has noticed."""
        self.channel.close()
        if self.process is None:
            return
        try:
            self.process.wait(0 if at_once else 5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def launch(backend: str) -> Zygote:
    """Start a worker process; it is not ready yet. Raises OSError when it cannot be started."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-I", "-c", BOOT, sandbox.worker_path(), str(theirs.fileno()),
                   json.dumps(sandbox.confinement(backend))]
        process = subprocess.Popen(
            sandbox.bwrap_command(command) if backend == "bwrap" else command,
            pass_fds=[theirs.fileno()], env=sandbox.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )
    return Zygote(backend, ours, process)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """For imports while the process comes up: without looking for garbage, of which they make none, on huge pages."""
    if sys.platform == "linux":
        linux.huge_heap(linux.IMPORTED_BYTES)
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
