"""Grade many submissions: in parallel, resumably, keeping every mark the moment it is made."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import course
import course.given
import course.judging
import course.notebooks
import course.specs
import gradeworker
import kernelcheck
from course import sources
from course.classroom.identity import Handed
from course.grade import audit, grading, variants
from course.grade import secret as secrets
from course.judging import feedback
from course.judging.judge import Verdict
from course.notebooks import submission as submissions
from course.notebooks.submission import Submission, Unreadable
from course.running.worker import Worker
from course.running.zygote import Zygote
from course.sources import Answer
from course.specs import exercises as all_exercises
from course.specs import solutions
from course.specs.exercise import Exercise

MARKS_VERSION = 1


@dataclass(frozen=True)
class Mark:
    """What is kept of a verdict. ``says`` may be shown to the student: it names mistakes, never hidden inputs."""

    id: str
    verdict: str
    points: int
    possible: int
    mistake: str = ""
    section: str = ""
    says: str = ""
    details: str = ""  # for the instructor: with the inputs of the case
    cases_right: int = 0
    cases_total: int = 0


@dataclass
class Graded:
    """One graded submission."""

    student: str
    path: str
    stem: str
    marks: list[Mark] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    digest: str = ""
    sandbox: str = ""
    unreadable: str = ""
    look_at: list[str] = field(default_factory=list)  # odd, not forbidden: reasons, for the instructor
    lms_id: str = ""
    shapes: dict[str, str] = field(default_factory=dict, repr=False)  # what `reports.similar` compares
    attempt: int = 0
    when: float = 0.0
    late: bool = False
    checkers: str = ""  # which version of the checkers judged it; see :func:`version`

    @property
    def points(self) -> int:
        return sum(mark.points for mark in self.marks)

    @property
    def possible(self) -> int:
        return sum(mark.possible for mark in self.marks)


def mark_of(verdict: Verdict) -> Mark:
    """A verdict as a mark."""
    item = verdict.exercise
    mistake = verdict.mistake
    details = "" if verdict.passed else feedback.text(verdict)
    return Mark(
        item.id,
        verdict.kind,
        item.points if verdict.passed else 0,
        item.points,
        mistake.name if mistake else "",
        mistake.section if mistake else item.section,
        feedback.after_grading(verdict),
        details,
        verdict.cases_right,
        verdict.cases_total,
    )


class Marks:
    """Marks on disk, one file each, written at once: a batch that is killed goes on where it was."""

    def __init__(self, folder: Path, secret: bytes):
        self.folder = folder
        self._salt = hashlib.sha256(secret).hexdigest()
        self.kept: set[str] = set()  # keys of the marks that were put on disk since

    def key(self, item: Exercise, source: str | None) -> str:
        """Changes when the answer, the checker, the secret or the release changes."""
        parts = [
            str(MARKS_VERSION),
            course.__version__,
            item.id,
            judges_digest(),
            repr(item.edition),
            self._salt,
            "" if source is None else Answer.of(source).normal,
        ]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def get(self, key: str) -> Mark | None:
        try:
            return Mark(**json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def put(self, key: str, mark: Mark) -> None:
        temporary = self.folder / f"{key}.{os.getpid()}-{threading.get_ident()}.tmp"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(dataclasses.asdict(mark)), encoding="ascii")
            temporary.replace(self.folder / f"{key}.json")
            self.kept.add(key)
        except OSError as error:
            with contextlib.suppress(OSError):  # a read-only file system refuses this too
                temporary.unlink(missing_ok=True)
            raise OSError(
                error.errno,
                f"{error.strerror}: marks cannot be kept in {self.folder}. Those already there are "
                "safe; make room or name another folder with --report, and run again",
            ) from None


JUDGES = (course.given, course.judging, course.notebooks, course.specs, gradeworker, kernelcheck)


@functools.cache
def judges_digest() -> str:
    """Digest of all code that a verdict depends on: specs and the solutions that near-misses are edits of, comparison,
    gate, given parts, worker, kernelcheck.

    All of it, not only the exercise's own spec: a mended comparison or a mended worker must not leave old marks alive.
    """
    files = [file for package in JUDGES for file in sorted(Path(package.__file__).parent.rglob("*.py"))]
    files += [Path(module.__file__) for module in (grading, secrets, sources, variants)]
    files += solutions.files()
    whole = hashlib.sha256()
    for file in files:
        whole.update(hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


def version(secret: bytes, personal: bool) -> str:
    """What judged: release, code and, where constants come from it, secret. Marks of two versions are of two exams."""
    owner = hashlib.sha256(secret).hexdigest() if personal else ""
    return f"{course.__version__} {hashlib.sha256((judges_digest() + owner).encode()).hexdigest()[:12]}"


def grade_one(
    worker: Worker, handed: Handed, secret: bytes, marks: Marks, rerun: frozenset[str] = frozenset(),
    personal: bool = False,
) -> Graded:
    """Grade one submission; every mark is kept as soon as it is made. ``infra`` is tried once more, and never kept.

    ``personal``: with the constants of this student's edition. A notebook that cannot be read is 0 points for its
    student, whatever kept it from being read.
    """
    graded = Graded(
        handed.student, str(handed.path), handed.stem, sandbox=worker.probe.label, lms_id=handed.lms_id,
        attempt=handed.attempt, when=handed.when, late=handed.late, checkers=version(secret, personal),
    )
    try:
        items, submission = _read(handed)
    except Unreadable as error:
        graded.unreadable = str(error)
        items = list(all_exercises(handed.stem)) if handed.stem else []
        graded.marks = [Mark(item.id, "unreadable", 0, item.points) for item in items]  # why is said once, of the file
        return graded
    if personal:
        items = [variants.edition(secret, handed.student, item) for item in items]
    graded.stem, graded.warnings, graded.digest = items[0].stem, submission.warnings, submission.digest
    graded.shapes = {name: answer.shape for name, answer in submission.answers.items() if answer.shape}
    for item in items:
        answer = submission.answers.get(item.id)
        mark = _marked(worker, item, answer, secret, marks, item.id in rerun)
        graded.marks.append(mark)
        if answer is not None and not answer.is_stub:
            graded.look_at += [f"{item.id}, {reason}" for reason in audit.look_at(item, answer)]
    return graded


def _read(handed: Handed) -> tuple[list[Exercise], Submission]:
    """The exercises that a notebook answers, and the answers. Raises :class:`Unreadable`, and nothing else."""
    try:
        notebook = submissions.read(handed.path)
        items = submissions.exercises_of(notebook, handed.path)
        return items, submissions.extract(notebook, handed.student, items)
    except Unreadable:
        raise
    except (Exception, RecursionError, MemoryError) as error:
        raise Unreadable(f"it is no notebook that can be read ({type(error).__name__}): open it in Jupyter, save it "
                         "again and hand it in") from None


def _marked(worker: Worker, item: Exercise, answer: Answer | None, secret: bytes, marks: Marks, rerun: bool) -> Mark:
    """The mark on one answer: the one that is kept, or a new one, which is kept from now on."""
    key = marks.key(item, answer)
    mark = None if rerun else marks.get(key)
    if mark is None:
        verdict = grading.grade_answer(worker, item, answer, secret)
        if verdict.kind == "infra":
            worker.close()
            verdict = grading.grade_answer(worker, item, answer, secret)
        mark = mark_of(verdict)
        if verdict.kind != "infra":
            marks.put(key, mark)
    return mark


def grade_all(
    handed: list[Handed],
    secret: bytes,
    marks: Marks,
    workers: int,
    backend: str | None = None,
    rerun: frozenset[str] = frozenset(),
    on_done: Callable[[Graded], None] = lambda graded: None,
    personal: bool = False,
    launched: Zygote | None = None,
) -> Iterator[Graded]:
    """Grade all, ``workers`` at a time; yields in the order in which they are done.

    launched: a worker process that was started early. The others are forked from the first one.

    Ctrl-C and errors end the workers; marks made until then are on disk.
    """
    spare: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    count = max(1, min(workers, len(handed)))
    first = Worker(backend, launched=launched, twins=count - 1)
    made = [first, *(Worker(backend, slot=slot, elder=first) for slot in range(1, count))]
    for worker in made:
        spare.put(worker)

    def task(item: Handed) -> Graded:
        worker = spare.get()
        try:
            return grade_one(worker, item, secret, marks, rerun, personal)
        finally:
            spare.put(worker)

    pool = ThreadPoolExecutor(len(made))
    waiting: set[Future[Graded]] = set()
    try:
        waiting = {pool.submit(task, item) for item in handed}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                graded = future.result()
                on_done(graded)
                yield graded
    finally:
        for future in waiting:
            future.cancel()
        pool.shutdown(wait=True, cancel_futures=True)
        for worker in made:
            worker.close()


def in_order(graded: list[Graded], handed: list[Handed]) -> list[Graded]:
    """What came back in any order, in the order of what was handed in."""
    place = {str(item.path): number for number, item in enumerate(handed)}
    return sorted(graded, key=lambda item: place.get(item.path, len(place)))
