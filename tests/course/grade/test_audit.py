"""Odd, not forbidden: found with its reason, and silent on every honest answer the course knows."""

import pytest

from course.authoring.build import solution_sources
from course.grade import audit
from course.judging import gate
from course.specs import exercise, exercises

ITEM = exercise("transformer_block.attention")  # does without softmax
HEAD = "def attention(q, k, v):\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"    t = {list(range(60))}\n    return q + t[0]", "line 2: a literal of 60 entries"),
        (f"    t = {dict.fromkeys(range(60), 1)}\n    return q + t[0]", "60 entries"),
        (f"    t = '{'7f' * 300}'\n    return q", "600 characters"),
        (f"    t = {10**60}\n    return q", "bits"),
        ("    if len(q) == 5: return q\n    if q.shape == (3, 4): return k\n    if q.size(0) == 7: 0", "fixed numbers"),
        ("    match q.shape:\n        case (3, 4): return q\n    if len(q) == 5 or len(k) > 9: return v", "fixed numb"),
        ("    global seen\n    seen = 1\n    return q", "global"),
        ("    attention.calls = 1\n    return q", "writes on itself"),
        ("    return q + id(k)", "id(...)"),
        ("    return q if torch.initial_seed() == 7 else k", "initial_seed"),
        ("    try:\n        return q @ k\n    except Exception:\n        return v", "line 4: whatever goes wrong"),
        ("    name = 'soft' 'max'\n    return q", "names softmax"),
        ("    return q  # \u202e", "U+202E"),
        ("    return torch.ones(3)", "reads none of its arguments"),
    ],
)
def test_what_is_odd_is_found_with_its_line(body, words):
    assert words in " | ".join(audit.look_at(ITEM, HEAD + body))


def test_defaults_and_caches_that_live_on():
    assert "default that can change" in audit.look_at(ITEM, "def attention(q, k, v, seen={}):\n    return q @ k @ v")[0]
    cached = f"from functools import lru_cache\n@lru_cache(None)\ndef size(n):\n    return n\n{HEAD}    return q @ k"
    assert "keeps its results" in audit.look_at(ITEM, cached)[0]


def test_letters_that_only_look_plain():
    found = audit.look_at(ITEM, HEAD + "    \uff51 = k\n    return q @ k @ v")
    assert "line 2: the name '\uff51' only looks like plain letters" in found


def test_honest_answers_are_left_in_peace():
    solutions = solution_sources()
    for item in exercises():
        for source in [solutions[item.id], *(other.source for other in item.alternates),
                       *(near.source for near in item.near_misses)]:
            assert audit.look_at(item, source) == [], item.id


def test_a_docstring_may_name_what_is_denied():
    source = HEAD + '    """Row softmax without torch.softmax."""\n    return q @ k @ v'
    assert audit.look_at(ITEM, source) == []


@pytest.mark.parametrize("source", ["def (", "x = " + "(" * 5000 + ")" * 5000, "\0", "x = " + "-" * 100_000 + "1"])
def test_what_cannot_be_read_is_no_ones_concern_here(source):
    assert audit.look_at(ITEM, source) == []


def test_odd_is_not_forbidden():
    """What the gate stops needs no flag; these pass it."""
    for body in ("    t = 'x' * 3\n    return q", f"    t = {list(range(60))}\n    return q"):
        assert gate.inspect(HEAD + body, ITEM.denied) == []
