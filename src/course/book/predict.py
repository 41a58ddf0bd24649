"""A prediction that the page takes: the reader guesses, then the result unfolds, the guess beside it.

On a page::

    ```{predict} How many integers?
    :key: mama
    :ask: tokens: tokens for the Russian line

    In English it takes SmolLM2 four integers. How many for the three Russian words?
    ```

and in a hidden cell, after the last thing that would give it away::

    measured("mama", tokens=count[russian])

What stands between the two is folded until the reader has written a guess, or has asked to see it anyway. A page
without scripts, and paper, show everything. ``:ask:`` holds one question or more, separated by ``;``, each
``name: label``; a label that ends in ``[a | b | c]`` is answered by choosing. A measured value is a number, a pair
of a number and how to write it, or for a choice one of its words. Guesses stay in the reader's browser
(``static/predict.js``); a figure on the same page can ask for them.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from html import escape

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)
_KEY = re.compile(r"[a-z][a-z0-9-]*\Z")
_QUESTION = re.compile(r"\s*(?P<name>[a-z][a-z0-9_]*)\s*:\s*(?P<label>[^\[\]]+?)\s*(?:\[(?P<choices>[^\]]*)\])?\s*\Z")


@dataclass(frozen=True)
class Question:
    """One thing to guess: a number, or one of `choices`."""

    name: str
    label: str
    choices: tuple[str, ...] = ()


def questions(text: str) -> tuple[Question, ...]:
    """The questions of an ``:ask:`` option. Raises ValueError that quotes the part at fault."""
    found = []
    for part in text.split(";"):
        match = _QUESTION.match(part)
        if not match:
            raise ValueError(f"{part.strip()!r} must read 'name: label' or 'name: label [this | that]'")
        choices = tuple(choice.strip() for choice in (match["choices"] or "").split("|") if choice.strip())
        if match["choices"] is not None and len(choices) < 2:
            raise ValueError(f"{match['name']!r} offers {len(choices)} choices, a choice needs two or more")
        found.append(Question(match["name"], match["label"], choices))
    names = [question.name for question in found]
    if len(set(names)) != len(names):
        raise ValueError(f"two questions have one name: {', '.join(names)}")
    return tuple(found)


class Measured:
    """What `measured` shows: nothing in a notebook but a line, in the book the end of what was folded."""

    def __init__(self, key: str, values: dict):
        self.key, self.values = key, values

    def markdown(self) -> str:
        return f"```{{measured}} {self.key}\n{json.dumps(self.values, ensure_ascii=False)}\n```\n"

    def _repr_mimebundle_(self, include=None, exclude=None):
        text = ", ".join(f"{name}: {value['shows']}" for name, value in self.values.items())
        return {"text/markdown": self.markdown(), "text/plain": f"measured: {text}"}


def measured(key: str, **values) -> Measured:
    """The results that the prediction `key` asked for, by the names of its questions."""
    if not values:
        raise ValueError(f"measured({key!r}) needs a value for each question")
    return Measured(key, {name: _value(name, value) for name, value in values.items()})


def _value(name: str, value) -> dict:
    number, text = value if isinstance(value, tuple) else (value, None)
    if isinstance(number, str):
        return {"value": number, "shows": text or number}
    number = float(number)
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError(f"{name} is {number}: nobody can guess that")
    return {"value": number, "shows": text or f"{number:,.10g}"}


class predict_box(nodes.General, nodes.Element):
    """The question, its fields, and, once it is known where, the measured values."""


class measured_here(nodes.Invisible, nodes.Element):
    """Marks where a result ends; taken out again when the result has been wrapped."""


class Predict(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {"key": directives.unchanged_required, "ask": directives.unchanged_required}  # noqa: RUF012

    def run(self):
        key = self.options.get("key", "")
        if not _KEY.match(key):
            raise self.error(f"a prediction needs a :key: such as 'mama', got {key!r}")
        try:
            asked = questions(self.options.get("ask", ""))
        except ValueError as error:
            raise self.error(f"prediction {key}: {error}") from error
        box = predict_box(key=key, asked=[asdict(question) for question in asked], docname=self.env.docname)
        self.set_source_info(box)
        title, messages = self.state.inline_text(self.arguments[0], self.lineno)
        box += nodes.paragraph("", "", *title, classes=["predict-title"])
        body = nodes.container(classes=["predict-text"])
        self.state.nested_parse(self.content, self.content_offset, body)
        box += body
        return [box, *messages]


class MeasuredDirective(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self):
        return [measured_here(key=self.arguments[0], values=json.loads("\n".join(self.content)))]


def _fold(box: predict_box, ends: dict[str, measured_here]) -> str | None:
    """Wrap what lies between a question and its result; the words of a fault, or None."""
    key = box["key"]
    end = ends.get(key)
    if end is None:
        return f"prediction {key!r} is never answered: end its result with measured({key!r}, ...) in a cell"
    names = [question["name"] for question in box["asked"]]
    if sorted(names) != sorted(end["values"]):
        return f"prediction {key!r} asks for {', '.join(names)} but is told {', '.join(end['values'])}"
    for question in box["asked"]:
        value = end["values"][question["name"]]["value"]
        if (question["choices"] and value not in question["choices"]) or isinstance(value, str) != bool(
            question["choices"]
        ):
            return f"prediction {key!r}: {question['name']} measured {value!r}, which cannot be answered in its field"
    top = end
    while top is not None and top.parent is not box.parent:
        top = top.parent
    if top is None or isinstance(top, nodes.section) or box.parent.index(top) < box.parent.index(box):
        return f"prediction {key!r} must stand before its result, in one section"
    first, last = box.parent.index(box) + 1, box.parent.index(top)
    between = box.parent.children[first : last + 1]
    wrapped = nodes.container(classes=["predict-result"])
    wrapped["predict_key"] = key
    parent = box.parent
    for node in between:
        parent.remove(node)
    wrapped += between
    parent.insert(first, wrapped)
    box["measured"] = end["values"]
    return None


def fold_results(app, doctree):
    """Wrap each result of the page; what does not fit is a warning, and so an error of the build."""
    ends: dict[str, measured_here] = {}
    for end in doctree.findall(measured_here):
        if end["key"] in ends:
            logger.warning("%s is measured twice", end["key"], location=end, type="course", subtype="predict")
        ends[end["key"]] = end
    boxes = list(doctree.findall(predict_box))
    for box in boxes:
        fault = _fold(box, ends)
        if fault:
            logger.warning("%s", fault, location=box, type="course", subtype="predict")
    for key in sorted(set(ends) - {box["key"] for box in boxes}):
        logger.warning("measured(%r): the page predicts no such thing", key, type="course", subtype="predict")
    for end in list(doctree.findall(measured_here)):
        end.parent.remove(end)


def _field(box: predict_box, question: dict) -> str:
    name, label = f"{box['key']}-{question['name']}", escape(question["label"])
    if question["choices"]:
        options = "".join(
            f'<label class="predict-choice"><input type="radio" name="{name}" value="{escape(choice, quote=True)}">'
            f"<span>{escape(choice)}</span></label>"
            for choice in question["choices"]
        )
        return f'<fieldset><legend>{label}</legend><div class="predict-choices">{options}</div></fieldset>'
    return (
        f'<label class="predict-field"><span>{label}</span>'
        f'<input type="text" inputmode="decimal" name="{name}" autocomplete="off" spellcheck="false"></label>'
    )


def _visit(self, box: predict_box):
    data = {
        "page": box["docname"],
        "key": box["key"],
        "asked": [{"name": q["name"], "label": q["label"]} for q in box["asked"]],
        "measured": box.get("measured", {}),
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    self.body.append(
        f'<div class="admonition predict" data-predict="{escape(box["key"], quote=True)}">'
        f'<script type="application/json">{text}</script>'
    )


def _depart(self, box: predict_box):
    fields = "".join(_field(box, question) for question in box["asked"])
    self.body.append(
        f'<form class="predict-form" hidden>{fields}<p class="predict-buttons"><button type="submit">Keep my guess'
        '</button><button type="button" class="predict-skip">Show the result without one</button></p>'
        '<p class="predict-says" role="status"></p></form><div class="predict-kept" hidden></div></div>'
    )


def _plain(self, node):
    """Other builders show the question and the result."""


def setup(app):
    app.add_node(predict_box, html=(_visit, _depart), latex=(_plain, _plain), text=(_plain, _plain))
    app.add_node(measured_here, html=(_plain, _plain), latex=(_plain, _plain), text=(_plain, _plain))
    app.add_directive("predict", Predict)
    app.add_directive("measured", MeasuredDirective)
    app.connect("doctree-read", fold_results, priority=100)
