"""A verdict in words: what was called, what came, what was expected, and which mistake it looks like."""

from __future__ import annotations

import builtins
import functools
import math
import os
import re
from pathlib import Path
from urllib.parse import quote

import torch

from course.judging import judge, kernel_words
from course.judging.compare import kind
from course.judging.judge import Verdict
from course.specs.exercise import Exercise
from gradeworker import wire
from gradeworker.answer import describe

SMALL = 24  # tensors up to this many elements are shown whole
KEY = re.compile(r"\['([^']*)'\]")
ADDRESS = re.compile(r" (object )?at 0x[0-9a-f]+")
RETURNED = "returned"  # the entry of a driver's observations that holds what the answer returned


def passed_line(exercise_id: str) -> str:
    """The one constant line of success, which nbval compares."""
    return f"{exercise_id}: all checks pass"


def show(value: object) -> str:
    """A value for a learner: small tensors whole, large ones by dtype and shape."""
    if isinstance(value, torch.Tensor):
        if not value.dim():
            return f"tensor({_numbers(value) if value.is_floating_point() else value.item()})"
        head = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        if value.numel() > SMALL:
            return head
        text = str(value.tolist()) if not value.is_floating_point() else _numbers(value)
        return f"{head} {text}"
    if isinstance(value, wire.Opaque):
        said = ADDRESS.sub("", value.text).rstrip()
        return (f"{said} ..." if len(value.text) >= 200 else said) if kind(value) in value.type and said else (
            f"a {kind(value)}")
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
    if len(text) <= 240:
        return text
    if type(value) is dict:
        return _cut("{", [f"{key!r}: {item!r}" for key, item in value.items()], "}", "entries")
    if type(value) in (list, tuple):
        opening, closing = "[]" if type(value) is list else "()"
        return _cut(opening, [repr(item) for item in value], closing, "items")
    return f"{text[:200]} ... ({len(text)} characters)"


def _cut(opening: str, parts: list[str], closing: str, what: str) -> str:
    """What stands first and what stands last; an entry is shown whole or not at all, but for one that is very long."""
    parts = [part if len(part) <= 120 else f"{part[:117]}..." for part in parts]
    front = max(_fitting(parts, 100), 1)
    back = _fitting(parts[front:][::-1], 140)
    middle = ["..."] if front + back < len(parts) else []
    shown = [*parts[:front], *middle, *parts[len(parts) - back :]]
    return f"{opening}{', '.join(shown)}{closing} ({len(parts)} {what})"


def _fitting(parts: list[str], room: int) -> int:
    """How many of the parts, from the first on, fit into so many characters."""
    total = 0
    for count, part in enumerate(parts):
        total += len(part) + 2
        if total > room:
            return count
    return len(parts)


def _brief(value: object) -> str:
    """One of many tensors: dtype and shape, however small."""
    if isinstance(value, torch.Tensor) and value.dim():
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
    if exercise.signature.startswith("class "):
        return f"a {exercise.entry}, put to use with {', '.join(shown)}"
    return f"{exercise.entry}({', '.join(shown)})"


def lines(verdict: Verdict) -> list[tuple[str, str]]:
    """The feedback as (label, text) rows, most important first."""
    exercise = verdict.exercise
    if verdict.passed:
        return [("", passed_line(exercise.id))]
    if verdict.kind in {"policy", "error"} and verdict.findings:
        return _finding_rows(verdict)
    if verdict.kind == "error":
        return _error_rows(verdict)
    if verdict.kind in {"wrong", "nondeterministic"}:
        return _wrong_rows(verdict)
    texts = {
        "missing": "no answer was found for this exercise: the cell is not there, or still as it was given",
        "timeout": f"the answer was stopped after {exercise.seconds:g} s: is there a loop that does not end?",
        "killed": "the process that ran the answer ended before it was done: does it call itself without end, or need "
        "very much memory?",
        "memory": "the answer took more memory than it may: does something grow in a loop, or has a tensor an axis too "
        "many?",
        "unreadable": "the answer's result could not be read",
        "infra": "the grader failed, not the answer; it will be run again",
    }
    return [("", texts.get(verdict.kind, verdict.kind))] + ([("note", verdict.note)] if verdict.note else [])


def _finding_rows(verdict: Verdict) -> list[tuple[str, str]]:
    kinds = {item.kind for item in verdict.findings}
    why = "this must change first"
    if "syntax" in kinds:
        why = "it is not valid Python"
    elif kinds == {"denied"}:
        why = "it leaves to a library what this exercise asks you to write"
    head = "not accepted" if kinds == {"denied"} else "the answer was not run"
    rows = [("", f"{head}: {why}")]
    rows += [(f"line {item.line}" if item.line else "to do", item.message.removeprefix("this is not Python: "))
             for item in verdict.findings[:5]]
    return rows + ([("it reads", verdict.line)] if verdict.line else [])


def _case_rows(verdict: Verdict) -> list[tuple[str, str]]:
    if verdict.case is None:
        return []
    return [("call", call(verdict))] + ([("case", verdict.case.label)] if verdict.case.label else [])


def _last_rows(verdict: Verdict) -> list[tuple[str, str]]:
    """What every kind of wrong answer ends with: the mistake it looks like, how far it is right, what it printed."""
    right = f"{verdict.cases_right} of {verdict.cases_total} cases are right"
    return _mistake_rows(verdict) + ([("so far", right)] if verdict.case else []) + _printed_rows(verdict)


def _error_rows(verdict: Verdict) -> list[tuple[str, str]]:
    error = verdict.error
    if verdict.note == judge.UNMARKED:
        return [("", f"the marked cell is still as it was given; another cell defines {verdict.exercise.entry}"),
                ("to do", f"make `# answer: {verdict.exercise.id}` its first line, or move it into the marked cell")]
    if _not_begun(verdict):
        return [("", f"{verdict.exercise.entry} is not written yet. Replace the line that raises NotImplementedError.")]
    if _not_defined(verdict):
        return [("", f"the cell must define {error['name']}; keep the name as it was given")] + _printed_rows(verdict)
    rows = _case_rows(verdict)
    if error["type"] == "KernelFault":
        rows.append(("fault", error["message"]))
        if verdict.mistake is None and (advice := kernel_words.FAULTS.get(error["name"])):
            rows.append(("to do", advice))
        return rows + _last_rows(verdict)
    at = f" at line {error['line']} of your cell" if error["line"] else ""
    if verdict.exercise.track == "kernel" and (advice := kernel_words.what_to_do(error, verdict.line)):
        rows.append(("to do", advice))
    rows.append(("raised", f"{error['type']}{at}: {error['message']}"))
    if verdict.line:
        rows.append(("it reads", verdict.line))
    if why := _why(verdict):
        rows.append(("why", why))
    return rows + _last_rows(verdict)


def _not_begun(verdict: Verdict) -> bool:
    """Is it the stub, or does the line that raised say no more than the stub's? Torch raises that error too."""
    return verdict.note == judge.STUB or (
        verdict.error["type"] == "NotImplementedError" and verdict.line.startswith("raise NotImplementedError"))


def _not_defined(verdict: Verdict) -> bool:
    """Does the cell lack the very name that it should define?"""
    error = verdict.error
    return verdict.case is None and error["type"] == "NameError" and error["name"] == verdict.exercise.entry


def _why(verdict: Verdict) -> str:
    """What stands behind an error whose own message does not say it."""
    error, entry = verdict.error, verdict.exercise.entry
    if error["type"] == "UnboundLocalError":
        name = re.search(r"variable '(\w+)'", error["message"])
        return (f"{name[1] if name else 'the name'} has no value when this line is reached: what gives it one comes "
                "later, or stands in a branch that was not taken")
    if error["name"]:
        return _missing_name(verdict)
    if error["type"] == "TypeError" and not error["line"] and error["message"].startswith(f"{entry}() "):
        return f"it is called as {verdict.exercise.signature}: keep the parameters as they were given"
    if error["type"] == "RecursionError":
        return "the function calls itself again and again: which call is the one that ends it?"
    return ""


def _missing_name(verdict: Verdict) -> str:
    name = verdict.error["name"]
    if verdict.note == judge.ELSEWHERE:
        return (f"{name} is defined in another cell of your notebook. An answer stands alone: "
                f"move {name} into this cell, then run the cell and the check again")
    return f"{name} is not defined in the answer cell. An answer stands alone: define or import {name} in it"


def _wrong_rows(verdict: Verdict) -> list[tuple[str, str]]:
    difference = verdict.difference
    rows = _case_rows(verdict)
    if difference.what == "mutated":
        rows.append(("problem", f"{difference.got}. The caller still needs it: work on a copy."))
        return rows + _last_rows(verdict)
    if difference.what == "traffic":
        text = f"the values are right, but {difference.got}; {difference.expected} are enough"
        rows.append(("problem", f"{text}. What is loaded or stored more than once?"))
        return rows + _last_rows(verdict)
    if observed := _observed(verdict):
        rows.append(("looked at", observed))
    rows.append(("came", show(_entry(verdict.got, difference.where))))
    rows.append(("expected", show(_entry(verdict.expected.value, difference.where))))
    rows.append(("problem", _problem(verdict)))
    if verdict.note:
        rows.append(("note", verdict.note))
    if verdict.kind == "nondeterministic":
        rows.append(("note", "the first call was right, the same call again was not: what lives on between calls?"))
    return rows + _last_rows(verdict)


def _entry(value: object, where: str) -> object:
    """Of a dict, the entry that ``where`` ("['keys'][0]") leads into; anything else, and what is missing, whole."""
    key = KEY.match(where)
    return value[key[1]] if key and isinstance(value, dict) and key[1] in value else value


def _observed(verdict: Verdict) -> str:
    """What an exercise that drives an answer looked at, in its words; "" where it is what the answer returned."""
    key = KEY.match(verdict.difference.where)
    return key[1] if key and verdict.exercise.driver and key[1] != RETURNED else ""


def _where(verdict: Verdict) -> str:
    """ " in result[0]", or "" for the result as a whole; without the keys that a driver puts round it."""
    where = verdict.difference.where
    if verdict.exercise.driver and (key := KEY.match(where)):
        inside = where[key.end() :]
        return f" in {'result' if key[1] == RETURNED else 'entry '}{inside}" if inside else ""
    return f" in result{where}" if where else ""


def _problem(verdict: Verdict) -> str:
    difference, where = verdict.difference, _where(verdict)
    at = f" at index {list(difference.index)}" if difference.index is not None else ""
    if difference.what == "value" and difference.error is not None and math.isfinite(difference.error):
        slack = f"up to {difference.allowed:.2g} is rounding" if difference.allowed else "it must be the same number"
        return (f"largest error {difference.error:.3g}{at}{where}: {difference.got} came, {difference.expected} is "
                f"right ({slack})")
    if difference.what == "nan":
        return f"{difference.got} came{at}{where} where {difference.expected} is right"
    if difference.what == "type":
        return _wrong_type(verdict, where)
    if difference.what in {"length", "keys"}:
        return f"{difference.got} came{where}, {difference.expected} are right"
    what = "" if difference.what == "shape" else f"{difference.what}: "
    return f"{what}{difference.got} came, {difference.expected} is right{at}{where}"


def _wrong_type(verdict: Verdict, where: str) -> str:
    got, expected = verdict.difference.got, verdict.difference.expected
    if got == "None":
        wanted = expected.split()[0]
        if where and not verdict.exercise.driver:
            return f"None came{where} where a {wanted} is right"
        if verdict.printed:
            return (f"the function returned None where a {wanted} is right{where}: print only shows a value, return "
                    "hands it to the caller")
        return f"the function returned None where a {wanted} is right{where}: does every path end in a return?"
    if got.split()[0] in {"function", "builtin_function_or_method", "method"}:
        return f"a function came{where}, not what it returns: are its brackets () missing?"
    return f"type: {got} came, {expected} is right{where}"


def _mistake_rows(verdict: Verdict) -> list[tuple[str, str]]:
    if verdict.mistake is None:
        return []
    return [("looks like", f"{verdict.mistake.name}. {verdict.mistake.says}"), ("reread", verdict.mistake.section)]


def _printed_rows(verdict: Verdict) -> list[tuple[str, str]]:
    text = verdict.printed.strip()
    return [("printed", text if len(text) <= 400 else f"{text[:400]} ...")] if text else []


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
        if verdict.note == judge.UNMARKED:
            return "written in an unmarked cell"
        if _not_begun(verdict):
            return "not written yet"
        if _not_defined(verdict):
            return f"the cell does not define {verdict.exercise.entry}"
        fault = verdict.error["type"] == "KernelFault" and verdict.error["name"] in kernel_words.FAULTS
        return f"{verdict.error['name'] if fault else verdict.error['type']}{at}"
    if verdict.kind == "nondeterministic":
        return "right the first time, not the second"
    if verdict.note == judge.NOTHING_STORED:
        return "the kernel stored nothing"
    if verdict.difference:
        what = {"value": "wrong values", "nan": "NaN or infinity", "mutated": verdict.difference.got,
                "traffic": "too many bytes moved"}
        short = what.get(verdict.difference.what, f"wrong {verdict.difference.what}")
        return f"{short}, {observed}" if (observed := _observed(verdict)) else short
    return {"timeout": "stopped: too slow", "memory": "too much memory"}.get(verdict.kind, verdict.kind)


def after_grading(verdict: Verdict) -> str:
    """What a student may read about a verdict on hidden cases: the mistake and where it shows, no hidden input."""
    if verdict.passed:
        return "all hidden cases are right"
    right = f" {verdict.cases_right} of {verdict.cases_total} hidden cases are right."
    if verdict.mistake:
        return f"{verdict.mistake.name}. {verdict.mistake.says}{right}"
    if verdict.findings:
        return "; ".join(f"line {item.line}: {item.message}" for item in verdict.findings[:5])
    first = f" It shows first on: {verdict.case.label}." if verdict.case and verdict.case.label else ""
    if verdict.kind in {"wrong", "nondeterministic"}:
        return f"{in_short(verdict)}.{first}{right}"
    if verdict.kind == "error" and verdict.error:
        begun = verdict.case and not _not_begun(verdict)
        return _raised_on_hidden(verdict) + (first + right if begun else "")
    if verdict.kind in {"timeout", "memory", "killed"}:  # their note is the end of a log that the answer may write to
        return lines(verdict)[0][1] + first
    return ". ".join(content for _, content in lines(verdict))


def _raised_on_hidden(verdict: Verdict) -> str:
    """An error without its message, and without a name that an answer could have made of a hidden input."""
    error = verdict.error
    at = f" at line {error['line']}" if error["line"] else ""
    if _not_begun(verdict):
        return f"{verdict.exercise.entry} is not written yet."
    if verdict.note == judge.ELSEWHERE:
        return f"it raised a NameError{at}. {_missing_name(verdict)}."
    if _not_defined(verdict):
        return f"the cell does not define {verdict.exercise.entry}: keep the name as it was given."
    if error["type"] == "KernelFault" and error["name"] in kernel_words.FAULTS:
        return f"{error['name']}{at}. {kernel_words.FAULTS[error['name']]}"
    known = isinstance(getattr(builtins, error["type"], None), type)
    return f"it raised {error['type'] if known else 'an error'}{at}."


def text(verdict: Verdict, width: int = 10) -> str:
    """Feedback as plain text: a headline that says what is wrong, then a row for each thing to know."""
    if verdict.passed:
        return passed_line(verdict.exercise.id)
    head, body = _head_and_body(verdict)
    indent = "\n" + " " * (width + 3)
    rows = [f"  {label:<{width}} {content}".replace("\n", indent) for label, content in body]
    return "\n".join([f"{verdict.exercise.id}: {head}", *rows])


def _head_and_body(verdict: Verdict) -> tuple[str, list[tuple[str, str]]]:
    rows = lines(verdict)
    return (rows[0][1], rows[1:]) if not rows[0][0] else (f"not yet right: {in_short(verdict)}", rows)


def stopped(exercise: Exercise, source: str, stop: KeyboardInterrupt) -> str:
    """For a learner who interrupted the check of an answer: where the answer was."""
    number = describe(stop)["line"]
    lines_of_answer = source.splitlines()
    at = f" at line {number} of your cell: {lines_of_answer[number - 1].strip()}" if number else ""
    return f"{exercise.id}: stopped by you{at}\n  {'to do':<10} Is there a loop that does not end?"


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


CODE = {"call", "came", "expected", "raised", "printed", "fault", "it reads"}  # rows that are set as code


@functools.cache
def _template():
    import jinja2  # not at the top: whoever grades a class shows nothing of this

    folder = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    made = jinja2.Environment(loader=folder, autoescape=True, undefined=jinja2.StrictUndefined)
    return made.get_template("feedback.html")


def rich(verdict: Verdict) -> str:
    """Feedback as HTML for a notebook, legible in a light and a dark theme."""
    head, body = _head_and_body(verdict)
    rows = [{"label": label, "content": content, "code": label in CODE,
             "link": section_link(content) if label == "reread" else None} for label, content in body]
    return _template().render(id=verdict.exercise.id, head=head, rows=rows)
