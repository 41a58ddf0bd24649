"""Grading. `open_submission` and `grade` are what the cells of a grafted notebook call; the rest is `course grade`."""

from __future__ import annotations

from pathlib import Path

__all__ = ["GradeError", "grade", "open_submission"]

_state: dict = {}


class GradeError(Exception):
    """An answer does not earn its points; the traceback is left out, so that nothing of the grader shows."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


def open_submission(digest: str, student: str = "") -> None:
    """Find the grafted notebook with this digest in the working directory. ``student``: whose constants count."""
    _launch()
    from course.grade import graft

    _state["student"] = student
    _state["submission"] = graft.find(digest, Path.cwd())


def grade(exercise_id: str) -> None:
    """Grade one exercise of the opened submission: print the constant line, or raise GradeError with feedback."""
    from course.grade.grading import grade_answer
    from course.judging import feedback
    from course.specs import exercise

    item = exercise(exercise_id)
    if _state.get("student"):
        from course.grade import variants

        item = variants.edition(_secret(), _state["student"], item)
    source = _state["submission"].answers.get(exercise_id)
    verdict = grade_answer(_worker(), item, source, _secret())
    if verdict.kind == "infra":  # the grader's fault: once more, with a worker of its own
        _worker().close()
        verdict = grade_answer(_worker(), item, source, _secret())
    if not verdict.passed:
        raise GradeError(f"[{verdict.kind}] " + feedback.text(verdict))
    print(feedback.passed_line(exercise_id))


def _launch() -> None:
    """Start the worker's process, if there is none, and import meanwhile what grading needs."""
    import atexit

    from course.running import sandbox, zygote

    if "launched" in _state or "worker" in _state or not zygote.HAS_FORK:
        return
    _state["launched"] = zygote.launch(sandbox.probe().backend)
    atexit.register(_state["launched"].close, at_once=True)
    with zygote.importing():
        from course import specs
        from course.grade import grading  # noqa: F401

        specs.exercises()


def _worker():
    if "worker" not in _state:
        import atexit

        from course.running.worker import Worker

        _state["worker"] = Worker(launched=_state.pop("launched", None))
        atexit.register(_state["worker"].close)
    return _state["worker"]


def _secret() -> bytes:
    from course import paths
    from course.grade import secret

    return secret.read(paths.state())
