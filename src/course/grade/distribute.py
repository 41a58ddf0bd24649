"""Grade on the machines of a Ray cluster: ``course grade ... --ray ADDRESS``.

Ray moves calls of :func:`course.grade.batch.grade_one` and nothing else. A submission travels as text, read once by the
driver and without its outputs; the call makes a sandbox of its own where it lands, as on one machine. The secret is an
argument of the call: it is in no environment, no file and no command line of a node. Marks are written to the driver's
folder as they arrive.

Every node needs this course, installed in the same release, and bubblewrap or a kernel with Landlock.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import course
from course.classroom.identity import Handed
from course.grade.batch import Graded, Mark, Marks, grade_one, mark_of
from course.judging.judge import Verdict
from course.notebooks import submission as submissions
from course.notebooks.submission import Unreadable
from course.running import sandbox
from course.running.worker import Worker

ATTEMPTS = 2  # a call that was lost with its node is sent once more
NO_RAY = "--ray needs Ray, which is not installed: pip install 'llm-internals[ray]' (or pip install 'ray>=2.40,<3')"


@dataclass(frozen=True)
class Order:
    """All that a call needs: a notebook as JSON text, and how to grade it."""

    handed: Handed
    notebook: str = dataclasses.field(repr=False)
    secret: bytes = dataclasses.field(repr=False)
    backend: str | None
    require_sandbox: bool
    rerun: frozenset[str]
    personal: bool
    release: str = course.__version__


class _Needed(BaseException):
    """An answer would have to be run. No Exception, since the grader takes any of those for a fault of its own."""


class _NoWorker:
    """Stands for a worker where every mark is known already; it runs nothing."""

    def __init__(self, probe: sandbox.Probe):
        self.probe = probe

    def run(self, job: Any, seconds: float) -> Any:
        raise _Needed

    def close(self) -> None:
        """Nothing to close."""


def carry_out(order: Order) -> tuple[Graded, dict[str, Mark]]:
    """Grade one submission here: runs on a node. Returns it with the marks that may be kept, by their keys."""
    if order.release != course.__version__:
        raise ValueError(f"{os.uname().nodename} has release {course.__version__} of the course, not {order.release}")
    with tempfile.TemporaryDirectory(prefix="course-ray-") as folder, Worker(order.backend) as worker:
        if order.require_sandbox and worker.backend == "none":
            raise ValueError(f"no sandbox works on {os.uname().nodename}: `course doctor` there says what is missing")
        path = Path(folder, "in", order.handed.path.name)
        path.parent.mkdir()
        path.write_text(order.notebook, encoding="utf-8")
        marks = Marks(Path(folder, "marks"), order.secret)
        handed = dataclasses.replace(order.handed, path=path)
        graded = grade_one(worker, handed, order.secret, marks, order.rerun, order.personal)
        kept = {each.stem: Mark(**json.loads(each.read_text(encoding="utf-8"))) for each in marks.folder.glob("*.json")}
    graded.path = str(order.handed.path)
    return graded, kept


def grade_all(
    handed: list[Handed],
    secret: bytes,
    marks: Marks,
    address: str,
    backend: str | None = None,
    rerun: frozenset[str] = frozenset(),
    personal: bool = False,
    require_sandbox: bool = False,
    on_lost: Callable[[Handed], None] = lambda handed: None,
    ray: Any = None,
) -> Iterator[Graded]:
    """As :func:`course.grade.batch.grade_all`, on the cluster at ``address`` ("auto", "host:6379", "ray://host:10001").

    A call whose node is lost is sent once more (``on_lost`` is told); lost again, or failed in the grader itself, its
    answers are ``infra``, which is no zero and is never kept. Raises ValueError without Ray or a cluster.
    """
    ray = ray or connect(address)
    probe = sandbox.probe(backend)
    remote = ray.remote(carry_out).options(num_cpus=1, max_retries=0)
    waiting: dict[Any, tuple[Order, int]] = {}
    todo = iter(handed)
    try:
        room = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        while True:
            while len(waiting) < room and (item := next(todo, None)) is not None:
                graded = _known(item, secret, marks, probe, rerun, personal)
                if graded is not None:
                    yield graded
                    continue
                order = Order(item, _text(item.path), secret, backend, require_sandbox, rerun, personal)
                waiting[remote.remote(order)] = order, 1
            if not waiting:
                return
            for reference in ray.wait(list(waiting), num_returns=1)[0]:
                order, attempt = waiting.pop(reference)
                try:
                    graded, kept = ray.get(reference)
                except ray.exceptions.RayTaskError as error:  # the grader failed, not the node
                    yield _infra(order, probe, f"{type(error.cause).__name__}: {error.cause}")
                except ray.exceptions.RayError as error:
                    if attempt < ATTEMPTS:
                        on_lost(order.handed)
                        waiting[remote.remote(order)] = order, attempt + 1
                        continue
                    yield _infra(order, probe, f"lost with its node {ATTEMPTS} times ({type(error).__name__})")
                else:
                    for key, mark in kept.items():
                        marks.put(key, mark)
                    yield graded
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)
        ray.shutdown()


def connect(address: str) -> Any:
    """Ray, connected to the cluster. Raises ValueError that says what to install or to start."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ValueError(NO_RAY) from None
    try:
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"no Ray cluster answers at {address} ({error}): start one with `ray start --head`, and "
                         "`ray start --address HOST:6379` on every other machine") from None
    return ray


def _text(path: Path) -> str:
    """The notebook as it travels: read as data, its outputs dropped."""
    notebook = submissions.read(path)
    for cell in notebook["cells"]:
        if isinstance(cell, dict) and "outputs" in cell:
            cell["outputs"] = []
    return json.dumps(notebook)


def _known(item: Handed, secret: bytes, marks: Marks, probe: sandbox.Probe, rerun: frozenset[str],
           personal: bool) -> Graded | None:
    """The submission graded here, when no answer of it needs to run: known marks, missing, unreadable, forbidden."""
    try:
        return grade_one(_NoWorker(probe), item, secret, marks, rerun, personal)
    except _Needed:
        return None


def _infra(order: Order, probe: sandbox.Probe, reason: str) -> Graded:
    """What is left of a submission that could not be graded: an ``infra`` for each of its exercises."""
    item = order.handed
    try:
        items = submissions.exercises_of(submissions.read(item.path), item.path)
    except Unreadable:
        items = []
    verdicts = [mark_of(Verdict("infra", each, note=reason)) for each in items]
    stem = items[0].stem if items else item.stem
    return Graded(item.student, str(item.path), stem, verdicts, sandbox=probe.label, lms_id=item.lms_id,
                  attempt=item.attempt, when=item.when, late=item.late)

