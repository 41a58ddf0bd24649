"""Grade a submission: find the answers, run each in the worker on hidden inputs, compare what came back."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from course.check import gate
from course.check.cells import is_stub
from course.check.judge import Verdict, calls, judge
from course.grade import secret as secrets
from course.grade import submission as submissions
from course.grade.submission import Submission, Unreadable
from course.grade.worker import Worker, WorkerFailed
from course.specs.exercise import Exercise


@dataclass
class Report:
    """Of one submitted notebook: a verdict for each exercise of the manifest. Absent is missing, missing is 0."""

    name: str
    path: str
    verdicts: list[Verdict] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    digest: str = ""
    unreadable: str = ""

    @property
    def points(self) -> int:
        return sum(verdict.exercise.points for verdict in self.verdicts if verdict.passed)

    @property
    def possible(self) -> int:
        return sum(verdict.exercise.points for verdict in self.verdicts)


def grade_answer(worker: Worker, exercise: Exercise, source: str | None, secret: bytes) -> Verdict:
    """The verdict on one answer. ``source`` None: there was none."""
    if source is None or is_stub(source):
        return Verdict("missing", exercise)
    findings = gate.inspect(source, exercise.denied, exercise.given, kernel=exercise.track == "kernel")
    if findings:
        kind = "error" if findings[0].kind == "syntax" else "policy"
        return Verdict(kind, exercise, findings=tuple(findings))
    cases = secrets.hidden_cases(secret, exercise, source)
    try:
        job = exercise.job(source, calls(cases))
        result = worker.run(job, exercise.seconds)
        if result.ended == "killed":  # by itself, or from outside (a machine short of memory): only once more tells
            result = worker.run(job, exercise.seconds)
        if result.ended in {"timeout", "unreadable", "memory"}:
            return Verdict(result.ended, exercise, note=_tail(result.log))
        verdict = judge(exercise, cases, result.outcomes)
    except WorkerFailed as error:
        return Verdict("infra", exercise, note=str(error))
    except (Exception, RecursionError, MemoryError) as error:  # one answer must not end the batch of all others
        return Verdict("infra", exercise, note=f"{type(error).__name__}: {str(error)[:300]}")
    if result.ended == "killed" and (verdict.kind == "pass" or not result.outcomes):
        return Verdict("killed", exercise, note=_tail(result.log))
    return verdict if verdict.kind != "killed" else dataclasses.replace(verdict, note=_tail(result.log))


def grade_submission(worker: Worker, submission: Submission, exercises: list[Exercise], secret: bytes,
                     path: str = "") -> Report:
    """Grade every exercise of the list."""
    report = Report(submission.name, path, warnings=submission.warnings, digest=submission.digest)
    report.verdicts = [
        grade_answer(worker, item, submission.answers.get(item.id), secret) for item in exercises
    ]
    return report


def grade_file(worker: Worker, path: Path, exercises: list[Exercise] | None, secret: bytes) -> Report:
    """Grade a notebook file; which exercises count is told from the notebook unless given."""
    from course.specs import exercises as all_exercises

    try:
        notebook = submissions.read(path)
        if exercises is None:
            exercises = exercises_of(notebook, path)
        submission = submissions.extract(notebook, path.stem, exercises)
    except Unreadable as error:
        wanted = exercises if exercises is not None else _by_file_name(path) or list(all_exercises())
        verdicts = [Verdict("unreadable", item, note=str(error)) for item in wanted]
        return Report(path.stem, str(path), verdicts, unreadable=str(error))
    return grade_submission(worker, submission, exercises, secret, str(path))


def exercises_of(notebook: dict, path: Path) -> list[Exercise]:
    """The exercises of the chapter that this notebook answers: told by its answers, its file name, its metadata.

    What a notebook says of itself comes last, so that none can choose a chapter with less to do.
    """
    from course.specs import CHAPTERS, exercises

    every = list(exercises())
    answered = {submissions.identity(cell, every) for cell in notebook["cells"] if isinstance(cell, dict)} - {None}
    counts = {stem: sum(item.split(".")[0] == stem for item in answered) for stem in CHAPTERS}
    by_name = _by_file_name(path)
    most = max(counts.values())
    if most:
        best = [stem for stem, count in counts.items() if count == most]
        if by_name and by_name[0].stem in best:
            return by_name
        return list(exercises(best[0]))
    if by_name:
        return by_name
    stem = submissions._metadata(notebook, "course").get("stem")
    if isinstance(stem, str) and stem in CHAPTERS:
        return list(exercises(stem))
    raise Unreadable(
        "it cannot be told which chapter this notebook answers: name the file as it was handed out "
        "(04_kv_cache.ipynb) or keep the lines `# answer: ...`"
    )


def _by_file_name(path: Path) -> list[Exercise] | None:
    from course.specs import CHAPTERS, exercises

    for stem in CHAPTERS:
        if stem in path.name:
            return list(exercises(stem))
    return None


def _tail(log: str) -> str:
    lines = [line for line in log.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
