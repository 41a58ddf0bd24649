"""What a notebook calls: `check`, `hint`, `try_in_model`, `kernel_report`, `predict`, `status`.

Practice only; points come from `course grade`.
"""

from __future__ import annotations

import dataclasses
import sys

from course.check import cells
from course.check.predictions import predict, reveal

__all__ = ["CheckFailed", "check", "hint", "kernel_report", "predict", "reveal", "status", "try_in_model"]

cells.watch()


class CheckFailed(Exception):
    """An answer is not yet right; the message is the feedback, and the traceback is left out.

    ``shown``: the feedback stands above already, drawn; then one line of it is enough.
    """

    def __init__(self, message: str, shown: bool = False):
        super().__init__(message)
        self.shown = shown

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()[: 1 if self.shown else None]


def check(exercise_id: str, **constants) -> None:
    """Check the answer cell of an exercise with its public cases. ``constants``: of your edition, where it has some.

    Prints one constant line when all is right; else raises CheckFailed with feedback in words. The cell is run
    again in a fresh namespace, so an answer that leans on other cells is told which name to move in.
    """
    from course.check import progress
    from course.judging import feedback, judge
    from course.notebooks import editions
    from course.specs import exercise

    source = _source(exercise(exercise_id))
    item = editions.chosen(exercise(exercise_id), source, constants)
    try:
        verdict = _practice(item, source)
    except KeyboardInterrupt as stop:
        raise CheckFailed(feedback.stopped(item, source, stop)) from None
    if verdict.error and verdict.error.get("name") and cells.defined_in_notebook(verdict.error["name"]):
        verdict = dataclasses.replace(verdict, note=judge.ELSEWHERE)
    if verdict.note == judge.STUB and cells.written_unmarked(item.entry):
        verdict = dataclasses.replace(verdict, note=judge.UNMARKED)
    _say_once(progress.record(exercise_id, source, verdict.passed, feedback.in_short(verdict)))
    if verdict.passed:
        print(feedback.passed_line(exercise_id))
        return
    text = feedback.text(verdict)
    raise CheckFailed(text, shown=_draw(feedback.rich(verdict), text))


def status():
    """Where you stand, chapter by chapter, and what comes next: shown when it is the last line of a cell."""
    from course.check import standing

    return standing.status()


def _say_once(message: str) -> None:
    """On the error stream, so that what a check prints stays one constant line."""
    if message and message not in _said:
        _said.add(message)
        print(message, file=sys.stderr)


_said: set[str] = set()


def _practice(item, source: str):
    """Kernels run in a warm child process, so that nothing a kernel does can end the notebook."""
    from course.judging import judge

    if item.track != "kernel":
        return judge.practice(item, source)
    from course.check import child

    return child.practice(item, source)


def hint(exercise_id: str, number: int | None = None) -> None:
    """Show the next hint of an exercise: three, each stronger. ``number`` (1 to 3) shows a certain one again."""
    from course.specs import exercise

    item = exercise(exercise_id)
    shown = _hints_shown.get(exercise_id, 0)
    which = number or min(shown + 1, len(item.hints))
    if not 1 <= which <= len(item.hints):
        raise ValueError(f"there are {len(item.hints)} hints: number must be 1 to {len(item.hints)}")
    _hints_shown[exercise_id] = max(shown, which)
    more = "" if which == len(item.hints) else f'   (call hint("{exercise_id}") again for a stronger one)'
    print(f"Hint {which} of {len(item.hints)}: {item.hints[which - 1]}{more}")


_hints_shown: dict[str, int] = {}


def try_in_model(exercise_id: str, prompt: str = "The capital of France is") -> None:
    """Run your answer inside the real model: the text it makes, the error of its logits, tokens per second.

    An answer that is missing or does not pass its check yet is told so; the check cell is where that is an error.
    """
    from course.check import trial
    from course.notebooks import editions
    from course.specs import exercise

    source = cells.source_for(exercise_id)
    item = editions.chosen(exercise(exercise_id), source or "")
    print(f"{exercise_id}: run its answer cell first" if source is None else trial.run(item, source, prompt))


def kernel_report(exercise_id: str, card: str = "l4", gpu: bool = False) -> None:
    """What your kernel moves, by tensor and source line, against what is allowed, and the least time on a card.

    ``card``: l4, a100, h100, h200 or rtx4090. ``gpu``: also compile the kernel for sm_80 and sm_90 (no card is needed)
    and say how many registers it takes, whether they spill and how wide its loads are. Printed, never graded.
    """
    from course.check import report
    from course.specs import exercise

    item = exercise(exercise_id)
    source = cells.source_for(exercise_id)
    try:
        text = f"{exercise_id}: run its answer cell first" if source is None else report.report(item, source, card, gpu)
    except RuntimeError as error:
        text = str(error)
    print(text)


def _source(item) -> str:
    source = cells.source_for(item.id)
    if source is None:
        raise CheckFailed(
            f"{item.id}: no answer has been run yet. Run the cell whose first line is `# answer: {item.id}`, "
            "then this one."
        )
    return source


def _draw(markup: str, text: str) -> bool:
    """Show feedback in a notebook, as HTML with a text for what cannot draw it; False where there is no notebook."""
    if not hasattr(cells.shell(), "kernel"):
        return False
    from IPython.display import display

    display({"text/html": markup, "text/plain": text}, raw=True)
    return True
