"""A warm child process in which practice runs of kernels happen; ends with the notebook."""

from __future__ import annotations

import atexit
import dataclasses
import importlib.util

from course.judging import judge
from course.judging.judge import Verdict
from course.running.worker import Worker
from course.specs.exercise import Exercise

_worker: Worker | None = None
NO_TRITON = (
    "Triton is not installed here (it exists for Linux and Windows). Read on: no other exercise depends on it. To "
    "write kernels, run the course in a Linux container or on Colab"
)


def practice(exercise: Exercise, source: str) -> Verdict:
    """The verdict on a kernel with the public cases, run in the child.

    Raises RuntimeError with the way on where there is no Triton.
    """
    if importlib.util.find_spec("triton") is None:
        raise RuntimeError(NO_TRITON)
    ended: list[str] = []

    def run(job):
        result = _child().run(job, exercise.seconds)
        ended.append(result.ended)
        return result.outcomes

    verdict = judge.practice(exercise, source, runner=run)
    if ended and ended[0] in {"timeout", "memory"} and not verdict.passed:
        return dataclasses.replace(verdict, kind=ended[0])
    return verdict


def _child() -> Worker:
    global _worker
    if _worker is None:
        _worker = Worker("none")
        atexit.register(_worker.close)
    return _worker
