"""Grade a submission: find the answers, run each in the worker on hidden inputs, compare what came back."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from course.grade import secret as secrets
from course.judging import feedback, gate
from course.judging.judge import ELSEWHERE, Verdict, calls, judge, line_of
from course.notebooks import submission as submissions
from course.notebooks.submission import Submission, Unreadable
from course.running.worker import Worker, WorkerFailed
from course.sources import Answer
from course.specs import exercises as all_exercises
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
    """The verdict on one answer. ``source`` None: there was none. Raises nothing but KeyboardInterrupt.

    Whatever the answer holds and gives back, it is read, judged and put into words in here: what cannot be is
    "unreadable", the student's; only what the machine or the worker does not do is "infra", the grader's.
    """
    try:
        verdict = _grade(worker, exercise, source, secret)
        feedback.text(verdict)  # what cannot be said later must not be met later
        return verdict
    except (WorkerFailed, OSError) as error:
        return Verdict("infra", exercise, note=str(error))
    except (Exception, RecursionError, MemoryError) as error:
        return Verdict("unreadable", exercise, note=f"{type(error).__name__} in the grader: {error!s:.300}")


def _grade(worker: Worker, exercise: Exercise, source: str | None, secret: bytes) -> Verdict:
    if source is None:
        return Verdict("missing", exercise)
    source = Answer.of(source)
    if source.is_stub:
        return Verdict("missing", exercise)
    findings = gate.inspect(source, exercise.given, exercise.track == "kernel", exercise.denied)
    if findings:
        kind = "error" if findings[0].kind == "syntax" else "policy"
        return Verdict(kind, exercise, findings=tuple(findings))
    cases = secrets.hidden_cases(secret, exercise, source)
    job = exercise.job(source, calls(cases))
    result = worker.run(job, exercise.seconds)
    if result.ended == "killed":  # by itself, or from outside (a machine short of memory): only once more tells
        result = worker.run(job, exercise.seconds)
    if result.ended in {"timeout", "unreadable", "memory"}:
        return Verdict(result.ended, exercise, note=_tail(result.log))
    verdict = judge(exercise, cases, result.outcomes)
    verdict = dataclasses.replace(verdict, line=line_of(source, verdict.error))
    if verdict.error and verdict.error.get("name") in source.elsewhere:
        verdict = dataclasses.replace(verdict, note=ELSEWHERE)
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
    try:
        notebook = submissions.read(path)
        if exercises is None:
            exercises = submissions.exercises_of(notebook, path)
        submission = submissions.extract(notebook, path.stem, exercises)
    except Unreadable as error:
        wanted = exercises if exercises is not None else submissions.exercises_by_name(path) or list(all_exercises())
        verdicts = [Verdict("unreadable", item, note=str(error)) for item in wanted]
        return Report(path.stem, str(path), verdicts, unreadable=str(error))
    return grade_submission(worker, submission, exercises, secret, str(path))


def _tail(log: str) -> str:
    lines = [line for line in log.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
