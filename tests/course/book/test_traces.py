"""Traces: the packed steps unpack to the scenes that went in, and every text that a reader needs is there."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.book.svg import Scene
from course.book.traces import MAX_FRAMES, Choice, Knob, dial, lab, pack, scrubber, widget


def unpack(packed: dict) -> list[list[list]]:
    """What the page does: fold the differences, draw in the order of the keys."""
    now, steps = set(), []
    for removed, added in packed["s"]:
        now = (now - set(removed)) | set(added)
        elements = sorted((packed["e"][i] for i in now), key=lambda e: e[0])
        steps.append([[packed["k"][k], tag, x, y, packed["a"][a], text] for k, tag, x, y, a, text in elements])
    return steps


boxes = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 3), st.sampled_from(["blue", "orange"])))


@given(st.lists(boxes, min_size=1, max_size=6))
def test_packed_steps_unpack_to_the_scenes(steps):
    scenes = []
    for step in steps:
        scene = Scene(100, 50)
        for key, (x, fill) in step.items():
            scene.rect(key, x, 0, 5, 5, fill=fill).text(f"{key}-text", x, 9, key)
        scenes.append(scene)
    assert [sorted(e.json() for e in scene.elements.values()) for scene in scenes] == [
        sorted(step) for step in unpack(pack(scenes))
    ]


def test_unchanged_elements_are_stored_once():
    scenes = [Scene(100, 50).rect("still", 0, 0, 5, 5).rect("moves", i, 0, 5, 5) for i in range(50)]
    packed = pack(scenes)
    assert len(packed["e"]) == 51
    assert packed["s"][1:] == [[[i], [i + 1]] for i in range(1, 50)]


def test_layers_order_the_keys():
    scene = Scene(10, 10).text("label", 0, 0, "x").rect("box", 0, 0, 1, 1).circle("front", 0, 0, 1, layer=2)
    assert pack([scene])["k"] == ["box", "label", "front"]


def three():
    return [Scene(680, 40).rect("a", i, 0, 5, 5).text("t", 0, 30, f"</script> {i}") for i in range(3)]


def test_a_scrubber_has_data_live_region_last_step_and_words():
    html = scrubber(three(), labels=["one", "two", "three"], alt="Three <steps>").html
    assert 'aria-label="Three &lt;steps&gt;"' in html
    assert 'aria-live="polite">three</p>' in html
    assert "<ol><li>one</li><li>two</li><li>three</li></ol>" in html
    assert "&lt;/script&gt; 2" in html.split("cf-controls")[0]
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', html, re.S)[1])
    assert data["labels"] == ["one", "two", "three"]
    assert len(data["wide"]["s"]) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": ["one"]}, "3 steps and 1 labels"),
        ({"labels": ["one", " ", "three"]}, "label 1 must be a non-empty string"),
        ({"labels": ["a", "b", "c"], "alt": ""}, "alt must be"),
        ({"labels": ["a", "b", "c"], "narrow": three()[:2]}, "narrow has 2 steps"),
        ({"labels": ["a", "b", "c"], "interval": 1000}, "in seconds"),
    ],
)
def test_a_scrubber_refuses_what_a_reader_would_miss(arguments, message):
    with pytest.raises(ValueError, match=message):
        scrubber(three(), **{"alt": "a", **arguments})


def test_a_dial_draws_every_combination_in_order():
    calls = []

    def draw(a, b):
        calls.append((a, b))
        return Scene(100, 20).rect("r", a, b, 5, 5), f"{a} and {b}"

    shown = dial([Knob("a", [1, 2], start=1), Knob("b", [3, 4, 5], start=2)], draw, alt="x")
    assert calls == [(1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5)]
    assert 'aria-live="polite">2 and 5</p>' in shown.html


def test_a_dial_refuses_too_many_combinations():
    with pytest.raises(ValueError, match=str(MAX_FRAMES)):
        dial([Knob("a", range(30)), Knob("b", range(30))], lambda a, b: None, alt="x")
    with pytest.raises(ValueError, match="two values or more"):
        Knob("a", [1])
    with pytest.raises(ValueError, match="starts at 5"):
        Knob("a", [1, 2], start=5)


def test_a_lab_draws_every_step_of_every_run():
    def steps(speed, mask):
        return [Scene(100, 20).rect("r", speed * i, 0, 5, 5) for i in range(speed + 1)]

    def labels(speed, mask):
        return [f"{speed} {mask} {i}" for i in range(speed + 1)]

    choices = [Choice("speed", [1, 2]), Choice("mask", ["on", "off"], start=1)]
    shown = lab(choices, steps, labels=labels, narrow=steps, alt="x", guess=("p", "q", "You said {}."))
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', shown.html, re.S)[1])
    assert [len(run) for run in data["runs"]] == [2, 2, 3, 3]
    assert len(data["wide"]["s"]) == len(data["narrow"]["s"]) == 10
    assert data["guess"] == ["p", "q", "You said {}."]
    assert 'aria-live="polite">1 off 1</p>' in shown.html
    assert "<li>speed 2, mask on: 2 on 2</li>" in shown.html


def test_a_lab_refuses_too_much_and_what_does_not_match():
    def many(n):
        return lambda a: [Scene(10, 10) for _ in range(n)]

    with pytest.raises(ValueError, match=str(MAX_FRAMES)):
        lab([Choice("a", [1, 2])], many(400), labels=lambda a: ["x"] * 400, alt="x")
    with pytest.raises(ValueError, match="as many steps"):
        lab([Choice("a", [1, 2])], many(2), labels=lambda a: ["x"] * 2, narrow=many(3), alt="x")
    with pytest.raises(ValueError, match="1 options"):
        Choice("a", [1])


def test_a_widget_needs_words_and_finite_numbers():
    with pytest.raises(ValueError, match="text_equivalent"):
        widget("example-dial", {}, alt="a", text_equivalent=[])
    with pytest.raises(ValueError):
        widget("example-dial", {"x": float("nan")}, alt="a", text_equivalent="words")
    assert "<p>words</p>" in widget("example-dial", {}, alt="a", text_equivalent="words").html
