"""Figures with a hand on them: recorded traces to step through, dials to turn, and widgets of your own.

For authors
-----------
Record what the real code did, draw each moment as a `Scene`, and give each a sentence::

    from course.book.svg import Scene
    from course.book.traces import scrubber

    steps, labels = [], []
    for event in run.events:                       # a recorded run, never made-up data
        scene = Scene(680, 240)
        for row in event.rows:
            scene.rect(f"row-{row.position}", 20, 24 * row.position, 9 * row.width, 20, fill="blue")
        steps.append(scene)
        labels.append(f"Token {event.position}: {event.num_rows} rows projected.")

    scrubber(steps, labels=labels, alt="Rows projected at each step of the naive generator",
             caption="Each step repeats all earlier ones.", name="fig-triangle")

Elements with the same key in two steps are the same thing: they move, grow and change colour. The reader has
a slider, buttons, arrow keys, Home and End; each step's sentence is spoken through a live region; all
sentences stand below the drawing as a list; paper shows the last step. Draw `narrow` steps (336 units wide)
for phones, or leave it and the drawing scrolls sideways there.

`dial` does the same for one or more knobs, every combination drawn in Python: use it while the combinations
are few. `lab` has recorded runs of several variants, chosen by buttons, each to be stepped through. For a
continuous figure write a file ``static/NAME.js`` that calls ``CourseFigures.dial`` or ``CourseFigures.register``
(see the top of ``static/course-figures.js``; ``static/example-dial.js`` is a whole one) and place it with
`widget`. All files in that folder are loaded on every page, so keep them small.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from course.book.display import Display, require_text
from course.book.svg import Scene, frame, number

MAX_FRAMES = 600


def pack(steps: Sequence[Scene]) -> dict:
    """Scenes as compact JSON data: each distinct element once, each step as the difference to the one before.

    ``k``: keys from back to front. ``a``: distinct attribute sets. ``e``: distinct elements, each
    ``[key, tag, x, y, attributes, text]`` with indices into ``k`` and ``a``. ``s``: per step
    ``[removed elements, added elements]``, indices into ``e``. ``w``, ``h``, ``min``: size and least width.
    """
    layers: dict[str, int] = {}
    for scene in steps:
        for element in scene.elements.values():
            layers.setdefault(element.key, element.layer)
    keys = sorted(layers, key=layers.get)  # stable: within a layer, the order of first appearance
    key_index = {key: i for i, key in enumerate(keys)}
    attributes: dict[tuple, int] = {}
    elements: dict[tuple, int] = {}
    moves, before = [], {}
    for scene in steps:
        now = {}
        for element in scene.elements.values():
            a = attributes.setdefault(element.attrs, len(attributes))
            state = (key_index[element.key], element.tag, element.x, element.y, a, element.text)
            now[elements.setdefault(state, len(elements))] = True
        moves.append([[i for i in before if i not in now], [i for i in now if i not in before]])
        before = now
    return {
        "w": max(scene.width for scene in steps),
        "h": max(scene.height for scene in steps),
        "min": max(scene.min_width() for scene in steps),
        "k": keys,
        "a": [dict(attrs) for attrs in attributes],
        "e": [[k, tag, float(x), float(y), a, text] for k, tag, x, y, a, text in elements],
        "s": moves,
    }


def _check_steps(steps, labels, what: str) -> tuple[list[Scene], list[str]]:
    steps, labels = list(steps), list(labels)
    if not steps or len(steps) != len(labels):
        raise ValueError(f"{what} needs one label for each step, got {len(steps)} steps and {len(labels)} labels")
    return steps, [require_text(label, f"label {i}") for i, label in enumerate(labels)]


def _page(kind: str, data: dict, *, alt: str, poster: str, says: str, words: str) -> str:
    """The HTML of a figure with controls; without JavaScript it shows `poster`, `says` and the words."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return (
        f'<div class="cf-play" role="group" aria-label="{escape(require_text(alt, "alt"), quote=True)}" '
        f'data-kind="{escape(kind, quote=True)}"><div class="cf-stage">{poster}</div>'
        f'<div class="cf-inputs"></div><p class="cf-says" aria-live="polite">{escape(says)}</p>'
        f'<div class="cf-controls"></div>{words}'
        f'<script type="application/json">{text}</script></div>'
    )


def _listed(summary: str, sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<details class="cf-steps"><summary>{escape(summary)}</summary><ol>{items}</ol></details>'


def scrubber(
    steps: Sequence[Scene],
    *,
    alt: str,
    labels: Sequence[str],
    caption: str | None = None,
    name: str | None = None,
    narrow: Sequence[Scene] | None = None,
    interval: float = 1.0,
) -> Display:
    """A recorded trace, drawn step by step.

    `labels` has one sentence for each step; `narrow` the same steps drawn for a column below 600 pixels;
    `interval` is the time of a step in seconds while playing. Raises ValueError when the numbers of steps and
    labels differ, or a text is empty.
    """
    steps, labels = _check_steps(steps, labels, "scrubber")
    if narrow is not None and len(narrow) != len(steps):
        raise ValueError(f"narrow has {len(narrow)} steps, the wide drawing has {len(steps)}")
    if not 0.05 <= interval <= 10:
        raise ValueError(f"interval is in seconds, from 0.05 to 10, got {interval}")
    data = {
        "wide": pack(steps),
        "narrow": pack(narrow) if narrow else None,
        "labels": labels,
        "interval": round(interval * 1000),
    }
    poster = frame(steps[-1].svg(alt), narrow[-1].svg(alt) if narrow else None)
    words = _listed(f"All {len(steps)} steps in words", labels)
    return Display(_page("scrubber", data, alt=alt, poster=poster, says=labels[-1], words=words), caption, name)


@dataclass(frozen=True)
class Knob:
    """One slider of a `dial`: its label, its values, how each is shown (default ``str``), where it starts."""

    label: str
    values: Sequence
    shows: Sequence[str] | None = None
    start: int = 0

    def __post_init__(self):
        require_text(self.label, "the knob's label")
        if len(self.values) < 2:
            raise ValueError(f"knob {self.label!r} needs two values or more, got {len(self.values)}")
        if self.shows is not None and len(self.shows) != len(self.values):
            raise ValueError(f"knob {self.label!r} has {len(self.values)} values but {len(self.shows)} texts for them")
        if not 0 <= self.start < len(self.values):
            raise ValueError(f"knob {self.label!r} starts at {self.start}, it has {len(self.values)} values")

    def texts(self) -> list[str]:
        return (
            list(self.shows)
            if self.shows is not None
            else [number(value) if isinstance(value, float) else str(value) for value in self.values]
        )


def dial(
    knobs: Sequence[Knob],
    draw: Callable[..., tuple[Scene, str]],
    *,
    alt: str,
    caption: str | None = None,
    name: str | None = None,
    narrow: Callable[..., Scene] | None = None,
) -> Display:
    """Sliders over a drawing; every combination is drawn here, by real code, and the page only looks it up.

    `draw` takes one value of each knob and returns the scene and a sentence that says what it shows; `narrow`
    takes the same and returns a scene for a column below 600 pixels. At most `MAX_FRAMES` combinations.
    """
    count = 1
    for knob in knobs:
        count *= len(knob.values)
    if not knobs or count > MAX_FRAMES:
        raise ValueError(
            f"dial draws each combination: {count} of them, allowed are 1 to {MAX_FRAMES}; "
            "use fewer values, or a widget that draws in JavaScript"
        )
    choices = list(itertools.product(*(knob.values for knob in knobs)))
    drawn = [draw(*choice) for choice in choices]
    scenes, labels = _check_steps([s for s, _ in drawn], [label for _, label in drawn], "dial")
    slim = [narrow(*choice) for choice in choices] if narrow else None
    first = 0
    for knob in knobs:
        first = first * len(knob.values) + knob.start
    data = {
        "wide": pack(scenes),
        "narrow": pack(slim) if slim else None,
        "labels": labels,
        "knobs": [{"label": k.label, "shows": k.texts(), "start": k.start} for k in knobs],
    }
    poster = frame(scenes[first].svg(alt), slim[first].svg(alt) if slim else None)
    words = _listed(f"All {count} settings in words", labels)
    return Display(_page("knobs", data, alt=alt, poster=poster, says=labels[first], words=words), caption, name)


@dataclass(frozen=True)
class Choice:
    """One thing to choose in a `lab`, as buttons: its label, its options, which is chosen at the start."""

    label: str
    options: Sequence
    start: int = 0

    def __post_init__(self):
        require_text(self.label, "the choice's label")
        if len(self.options) < 2 or not 0 <= self.start < len(self.options):
            raise ValueError(f"choice {self.label!r} has {len(self.options)} options and starts at {self.start}")


def lab(
    choices: Sequence[Choice],
    steps: Callable[..., Sequence[Scene]],
    *,
    labels: Callable[..., Sequence[str]],
    alt: str,
    caption: str | None = None,
    name: str | None = None,
    narrow: Callable[..., Sequence[Scene]] | None = None,
    interval: float = 0.5,
    guess: tuple[str, str, str] | None = None,
) -> Display:
    """Recorded runs to choose from: `steps` takes one option of each choice and returns that run, step by step.

    `labels` has a sentence for each step of each run. It starts before the first step of the run that is chosen at
    the start; paper, and a page without scripts, show that run's last step. At most `MAX_FRAMES` steps in all.
    `guess` is (prediction, question, words with ``{}``): what the reader guessed is said at the end of every run.
    """
    variants = list(itertools.product(*(choice.options for choice in choices)))
    drawn = [_check_steps(steps(*variant), labels(*variant), f"lab {variant}") for variant in variants]
    slim = [list(narrow(*variant)) for variant in variants] if narrow else None
    count = sum(len(scenes) for scenes, _ in drawn)
    if not choices or count > MAX_FRAMES:
        raise ValueError(f"lab draws each step of each run: {count} of them, allowed are 1 to {MAX_FRAMES}")
    if slim and [len(run) for run in slim] != [len(scenes) for scenes, _ in drawn]:
        raise ValueError("the narrow runs must have as many steps as the wide ones")
    first = 0
    for choice in choices:
        first = first * len(choice.options) + choice.start
    data = {
        "wide": pack([scene for scenes, _ in drawn for scene in scenes]),
        "narrow": pack([scene for run in slim for scene in run]) if slim else None,
        "runs": [said for _, said in drawn],
        "choices": [{"label": c.label, "options": [str(o) for o in c.options], "start": c.start} for c in choices],
        "interval": round(interval * 1000),
        "guess": list(guess) if guess else None,
    }
    scenes, said = drawn[first]
    poster = frame(scenes[-1].svg(alt), slim[first][-1].svg(alt) if slim else None)
    ends = [
        f"{', '.join(f'{c.label} {option}' for c, option in zip(choices, variant))}: {sentences[-1]}"
        for variant, (_, sentences) in zip(variants, drawn)
    ]
    words = _listed(f"All {len(ends)} runs in words", ends)
    return Display(_page("lab", data, alt=alt, poster=poster, says=said[-1], words=words), caption, name)


def widget(
    kind: str,
    data: dict,
    *,
    alt: str,
    text_equivalent: str | Sequence[str],
    caption: str | None = None,
    name: str | None = None,
    poster: Scene | None = None,
    narrow: Scene | None = None,
) -> Display:
    """A figure drawn by ``static/*.js`` that registered `kind`; `data` is JSON (finite numbers only).

    `text_equivalent` says in words what the figure teaches: a paragraph, or a list of sentences. `poster` is
    what paper and a page without JavaScript show. An unknown kind shows as a console error in the page, which
    the browser test catches.
    """
    sentences = [text_equivalent] if isinstance(text_equivalent, str) else list(text_equivalent)
    if not sentences:
        raise ValueError("text_equivalent must not be empty: say in words what the figure teaches")
    sentences = [require_text(sentence, "text_equivalent") for sentence in sentences]
    if len(sentences) == 1:
        words = (
            f'<details class="cf-steps"><summary>This figure in words</summary><p>{escape(sentences[0])}</p></details>'
        )
    else:
        words = _listed("This figure in words", sentences)
    drawn = frame(poster.svg(alt), narrow.svg(alt) if narrow else None) if poster else ""
    return Display(_page(kind, data, alt=alt, poster=drawn, says="", words=words), caption, name)
