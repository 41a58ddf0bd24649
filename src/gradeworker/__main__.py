"""The worker process: imports torch once, then forks a child for each job.

Speaks to its parent over one Unix socket (its descriptor is argv[1]). A message is JSON
``{"id", "scratch", "limits"}`` with three descriptors: job bytes to read, result frames to write, log to
write. Answers: ``{"ready": pid}``, ``{"id", "pid"}`` when a child has started, ``{"id", "status"}`` when it
has ended. Where there is no fork (Windows) the parent starts ``--once``: job on stdin, frames on stdout.

A result frame is ``<Q`` length and the bytes of an Outcome.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys

FRAME = struct.Struct("<Q")
# The course knows the expected values and so has no business here. A courtesy, not a wall: walls need a sandbox.
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
    for outcome in run(job):
        data = outcome.to_bytes()
        view = memoryview(FRAME.pack(len(data)) + data)
        while view:
            view = view[os.write(result_fd, view) :]


def _set_limits(limits: dict[str, int]) -> None:
    import resource

    for name, value in limits.items():
        kind = getattr(resource, name, None)
        if kind is not None:
            with contextlib.suppress(ValueError, OSError):
                hard = resource.getrlimit(kind)[1]
                value = value if hard == resource.RLIM_INFINITY else min(value, hard)
                resource.setrlimit(kind, (value, value))


def _child(message: dict, fds: list[int]) -> None:
    """In the forked child: own session, limits and descriptors, then the answer. Never returns."""
    try:
        os.setsid()
        job, result, log = fds
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(message["scratch"])
        _set_limits(message["limits"])
        serve_job(job, result)
        sys.stdout.flush()
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
        os._exit(1)
    os._exit(0)


def serve(channel: socket.socket) -> None:
    """Accept jobs until the parent closes the channel; then end every child that still runs."""
    children: dict[int, str] = {}
    channel.send(json.dumps({"ready": os.getpid()}).encode())
    while True:
        readable, _, _ = select.select([channel], [], [], 0.02 if children else None)
        if readable:
            data, fds, _, _ = socket.recv_fds(channel, 1 << 16, 3)
            if not data:
                break
            message = json.loads(data)
            pid = os.fork()
            if pid == 0:
                channel.close()
                _child(message, fds)
            for fd in fds:
                os.close(fd)
            children[pid] = message["id"]
            channel.send(json.dumps({"id": message["id"], "pid": pid}).encode())
        for pid in list(children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                channel.send(json.dumps({"id": children.pop(pid), "status": status}).encode())
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, 9)


def main() -> None:
    import torch

    torch.set_num_threads(1)
    sys.meta_path.insert(0, _Blocked())
    if sys.argv[1] == "--once":
        result = os.dup(1)
        os.dup2(2, 1)
        serve_job(0, result)
        return
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
