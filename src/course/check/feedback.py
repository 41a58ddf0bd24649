"""A verdict in words: what was called, what came, what was expected, and which mistake it looks like."""

from __future__ import annotations

import html
import math
import os
import re
from urllib.parse import quote

import torch

from course.check import kernel_words
from course.check.judge import Verdict
from gradeworker import wire

SMALL = 24  # tensors up to this many elements are shown whole


def passed_line(exercise_id: str) -> str:
    """The one constant line of success, which nbval compares."""
    return f"{exercise_id}: all checks pass"


def show(value: object) -> str:
    """A value for a learner: small tensors whole, large ones by dtype and shape."""
    if isinstance(value, torch.Tensor):
        head = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        if value.numel() > SMALL:
            return head
        text = str(value.tolist()) if not value.is_floating_point() else _numbers(value)
        return f"{head} {text}"
    if isinstance(value, wire.Opaque):
        return value.text or f"a {value.type}"
    if isinstance(value, wire.OnDevice):
        return f"a tensor on {value.device}"
    if isinstance(value, wire.Build):
        inside = ", ".join(f"{key}={show(item)}" for key, item in value.kwargs.items())
        return f"{value.name}({inside})"
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        inside = ", ".join(show(item) for item in value)
        return f"({inside})" if isinstance(value, tuple) else f"[{inside}]"
    if isinstance(value, dict) and any(isinstance(item, torch.Tensor) for item in value.values()):
        return "{" + ", ".join(f"{key!r}: {_brief(item)}" for key, item in value.items()) + "}"
    text = repr(value)
    return text if len(text) <= 240 else f"{text[:200]} ... ({len(text)} characters)"


def _brief(value: object) -> str:
    """One of many tensors: dtype and shape, however small."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return show(value)


def _numbers(value: torch.Tensor) -> str:
    def walk(item):
        if isinstance(item, list):
            return "[" + ", ".join(walk(part) for part in item) + "]"
        return f"{item:.4g}"

    return walk(value.tolist())


def call(verdict: Verdict) -> str:
    """The call of the case, with its arguments by name."""
    case, exercise = verdict.case, verdict.exercise
    names = [*exercise.parameters, *(f"argument {i}" for i in range(len(exercise.parameters), len(case.args)))]
    shown = [f"{name}={show(value)}" for name, value in zip(names, case.args)]
    shown += [f"{name}={show(value)}" for name, value in case.kwargs.items()]
    return f"{exercise.entry}({', '.join(shown)})"


def lines(verdict: Verdict) -> list[tuple[str, str]]:
    """The feedback as (label, text) rows, most important first."""
    exercise = verdict.exercise
    if verdict.passed:
        return [("", passed_line(exercise.id))]
    if verdict.kind in {"policy", "error"} and verdict.findings:
        rows = [("", "the answer was not run: " + (
            "it is not valid Python" if verdict.findings[0].kind == "syntax" else "it uses what it should not"))]
        return rows + [(f"line {item.line}", item.message) for item in verdict.findings[:5]]
    if verdict.kind == "error":
        return _error_rows(verdict)
    if verdict.kind in {"wrong", "nondeterministic"}:
        return _wrong_rows(verdict)
    texts = {
        "missing": "no answer was found for this exercise",
        "timeout": f"the answer was stopped after {exercise.seconds:g} s: is there a loop that does not end?",
        "killed": "the process that ran the answer ended before it was done",
        "memory": "the answer took more memory than it may",
        "unreadable": "the answer's result could not be read",
        "infra": "the grader failed, not the answer; it will be run again",
    }
    return [("", texts.get(verdict.kind, verdict.kind))] + ([("note", verdict.note)] if verdict.note else [])


def _error_rows(verdict: Verdict) -> list[tuple[str, str]]:
    error = verdict.error
    if error["type"] == "NotImplementedError":
        return [("", f"{verdict.exercise.entry} is not written yet. Replace the line that raises NotImplementedError.")]
    rows = []
    if verdict.case is not None:
        rows.append(("call", call(verdict)))
        if verdict.case.label:
            rows.append(("case", verdict.case.label))
    at = f" at line {error['line']} of your cell" if error["line"] else ""
    if error["type"] == "KernelFault":
        rows.append(("fault", error["message"]))
        return rows + _mistake_rows(verdict) + _printed_rows(verdict)
    if verdict.exercise.track == "kernel" and (advice := kernel_words.what_to_do(error, verdict.line)):
        rows.append(("to do", advice))
    rows.append(("raised", f"{error['type']}{at}: {error['message']}"))
    if error["name"]:
        rows.append(("why", _missing_name(verdict)))
    return rows + _mistake_rows(verdict) + _printed_rows(verdict)


def _missing_name(verdict: Verdict) -> str:
    name = verdict.error["name"]
    if name == verdict.exercise.entry:
        return f"the cell must define {name}; keep the name as it was given"
    if verdict.note == "elsewhere":
        return (f"{name} is defined in another cell of your notebook. An answer stands alone: "
                f"move {name} into this cell, then run the cell and the check again")
    return f"{name} is not defined in the answer cell. An answer stands alone: define or import {name} in it"


def _wrong_rows(verdict: Verdict) -> list[tuple[str, str]]:
    difference = verdict.difference
    rows = [("call", call(verdict))]
    if verdict.case.label:
        rows.append(("case", verdict.case.label))
    if difference.what == "mutated":
        rows.append(("problem", f"{difference.got}. The caller still needs it: work on a copy."))
        return rows + _mistake_rows(verdict) + _printed_rows(verdict)
    if difference.what == "traffic":
        text = f"the values are right, but {difference.got}; {difference.expected} are enough"
        rows.append(("problem", f"{text}. What is loaded or stored more than once?"))
        return rows + _mistake_rows(verdict) + _printed_rows(verdict)
    where = f" in result{difference.where}" if difference.where else ""
    rows.append(("came", show(_entry(verdict.got, difference.where))))
    rows.append(("expected", show(_entry(verdict.expected.value, difference.where))))
    rows.append(("problem", _problem(difference) + where))
    if verdict.note:
        rows.append(("note", verdict.note))
    if verdict.kind == "nondeterministic":
        rows.append(("note", "the first call was right, the same call again was not: what lives on between calls?"))
    right = f"{verdict.cases_right} of {verdict.cases_total} cases are right"
    return rows + _mistake_rows(verdict) + [("so far", right)] + _printed_rows(verdict)


def _entry(value: object, where: str) -> object:
    """Of a dict, the entry that ``where`` ("['keys'][0]") leads into; anything else, and what is missing, whole."""
    key = re.match(r"\['([^']*)'\]", where)
    return value[key[1]] if key and isinstance(value, dict) and key[1] in value else value


def _problem(difference) -> str:
    at = f" at index {list(difference.index)}" if difference.index is not None else ""
    if difference.what == "value" and difference.error is not None and math.isfinite(difference.error):
        slack = f"up to {difference.allowed:.2g} is rounding" if difference.allowed else "it must be the same number"
        return (f"largest error {difference.error:.3g}{at}: {difference.got} came, {difference.expected} is right "
                f"({slack})")
    if difference.what == "nan":
        return f"{difference.got} came{at} where {difference.expected} is right"
    if difference.what == "type" and difference.got == "None":
        return f"the function returned None where a {difference.expected} is right: does every path end in a return?"
    what = "" if difference.what == "shape" else f"{difference.what}: "
    return f"{what}{difference.got} came, {difference.expected} is right{at}"


def _mistake_rows(verdict: Verdict) -> list[tuple[str, str]]:
    if verdict.mistake is None:
        return []
    return [("looks like", f"{verdict.mistake.name}. {verdict.mistake.says}"), ("reread", verdict.mistake.section)]


def _printed_rows(verdict: Verdict) -> list[tuple[str, str]]:
    text = verdict.printed.strip()
    return [("printed", text[:400])] if text else []


def in_short(verdict: Verdict) -> str:
    """The mistake in a few words, for a table: its name, or what went wrong first; nothing for a right answer."""
    if verdict.passed:
        return ""
    if verdict.mistake:
        return verdict.mistake.name
    if verdict.findings:
        return f"line {verdict.findings[0].line}: {verdict.findings[0].message}"
    if verdict.error:
        at = f" at line {verdict.error['line']}" if verdict.error["line"] else ""
        written = verdict.error["type"] != "NotImplementedError"
        return f"{verdict.error['type']}{at}" if written else "not written yet"
    if verdict.difference:
        what = {"value": "wrong values", "nan": "NaN or infinity", "mutated": "an input was changed",
                "traffic": "too many bytes moved"}
        return what.get(verdict.difference.what, f"wrong {verdict.difference.what}")
    return {"timeout": "stopped: too slow", "memory": "too much memory"}.get(verdict.kind, verdict.kind)


def text(verdict: Verdict, width: int = 10) -> str:
    """Feedback as plain text."""
    if verdict.passed:
        return passed_line(verdict.exercise.id)
    rows = lines(verdict)
    head = f"{verdict.exercise.id}: {rows[0][1]}" if not rows[0][0] else f"{verdict.exercise.id}: not yet right"
    body = rows[1:] if not rows[0][0] else rows
    return "\n".join([head] + [f"  {label:<{width}} {content}" for label, content in body])


_STYLE = """
.cf{font:14px/1.5 system-ui,sans-serif;border-left:4px solid #c2410c;padding:.6em 1em;margin:.3em 0;
background:color-mix(in srgb,#c2410c 7%,transparent);border-radius:4px;max-width:60rem;overflow-wrap:anywhere}
.cf b{font-weight:600}.cf code{font-size:13px}.cf a{color:inherit;text-decoration:underline}
.cf dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.25em 1em;margin:.5em 0 0}
.cf dt,.cf dd{float:none;width:auto;margin:0;padding:0}.cf dd{white-space:pre-wrap}
.cf dt,.cf .hint{font-weight:400;color:color-mix(in srgb,currentColor 80%,transparent)}
.cf dt{white-space:nowrap}.cf .hint{margin-top:.5em}.cf .mistake{font-weight:600}
@media (max-width:480px){.cf dl{grid-template-columns:minmax(0,1fr)}.cf dd{margin-bottom:.3em}}
"""


def section_link(section: str) -> str | None:
    """Address of a section in the built book, relative to the working directory; None when no book is built.

    JupyterLab opens such a link itself, if the book lies below the folder that it serves.
    """
    from course import paths

    page, _, anchor = section.partition("#")
    try:
        built = paths.root() / "_build" / "html" / page
        if not built.is_file():
            return None
        return f"{quote(os.path.relpath(built).replace(os.sep, '/'))}#{quote(anchor)}"
    except (FileNotFoundError, ValueError):  # no course folder; another drive
        return None


def rich(verdict: Verdict) -> str:
    """Feedback as HTML for a notebook, legible in a light and a dark theme."""
    rows = lines(verdict)
    head = rows[0][1] if not rows[0][0] else "not yet right"
    body = rows[1:] if not rows[0][0] else rows
    code = {"call", "came", "expected", "raised", "printed", "fault"}
    parts = []
    for label, content in body:
        shown = html.escape(content)
        if label in code:
            shown = f"<code>{shown}</code>"
        elif label == "reread":
            link = section_link(content)
            shown = f'<a href="{html.escape(link)}">{shown}</a>' if link else f"{shown} (of the book: make book)"
        elif label == "looks like":
            shown = f'<span class="mistake">{shown}</span>'
        parts.append(f"<dt>{html.escape(label)}</dt><dd>{shown}</dd>")
    hint = f'<div class="hint">Stuck? <code>hint("{verdict.exercise.id}")</code></div>'
    return (f"<style>{_STYLE}</style><div class='cf'><b>{html.escape(verdict.exercise.id)}</b>: "
            f"{html.escape(head)}<dl>{''.join(parts)}</dl>{hint}</div>")
