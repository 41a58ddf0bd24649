"""An answer knows its tree, its digest and whether anybody has begun, each worked out once."""

import ast
import threading

import pytest

from course import sources
from course.sources import Answer

SOURCE = "def f(x, /, *y: int):\n    return [a for a in x if a] + (lambda b: b)(y)\n"
STUB = "# answer: a.b\ndef f(x):\n    # YOUR CODE HERE\n    raise NotImplementedError"


def test_the_tree_and_its_nodes_are_those_of_ast():
    answer = Answer(SOURCE)
    assert ast.dump(answer.tree) == ast.dump(ast.parse(SOURCE))
    assert [type(node) for node in answer.nodes] == [type(node) for node in ast.walk(ast.parse(SOURCE))]


def test_an_answer_is_parsed_once(monkeypatch):
    parsed = []
    monkeypatch.setattr(sources, "parse", lambda source: parsed.append(source) or ast.parse(source))
    answer = Answer.of(Answer(STUB))
    assert answer.is_stub
    assert answer.nodes
    assert answer.problem is None
    assert answer.shape == ""
    assert parsed == [STUB]


def test_an_answer_is_its_text():
    answer = Answer("x = 1")
    assert answer == "x = 1"
    assert {answer: 1}["x = 1"] == 1
    assert Answer.of(answer) is answer


@pytest.mark.parametrize("source", ["def f(:", "x = '\0'", "a" + "(" * 500 + ")" * 500, "-" * 2_000 + "1",
                                    "x = 1\n" * 20_000, "\ud800", "@(" + "-" * 2_000 + "1)\ndef f(): pass"])
def test_what_cannot_be_parsed_has_no_tree_and_says_why(source):
    answer = Answer(source)
    assert (answer.tree is None) == (answer.problem is not None)
    assert isinstance(answer.nodes, tuple)
    assert answer.shape == "" or answer.tree is not None
    assert answer.is_stub is False
    assert len(answer.digest) == 64


@pytest.mark.parametrize(("source", "begun"), [
    (STUB, False),
    (STUB.replace("NotImplementedError", "NotImplementedError()"), False),
    (STUB.replace("NotImplementedError", f"NotImplementedError({'-' * 150}1)"), False),
    (STUB.replace("    # YOUR", "    return x\n    # YOUR"), True),
    ("def f(x):\n    raise NotImplementedError", True),
    (STUB + "\n" + "# padding\n" * 20_000, True),
])
def test_a_stub_says_where_to_begin_and_raises_there(source, begun):
    assert Answer(source).is_stub is not begun


def test_a_stub_that_is_nested_too_deeply_to_be_read_is_one_all_the_same():
    assert Answer(STUB + f"({'-' * 5_000}1)").is_stub


def test_many_threads_parse_at_once():
    found = []

    def look(source: str) -> None:
        found.append(len(Answer(source).nodes))

    threads = [threading.Thread(target=look, args=(f"{SOURCE}x = {i % 40}",)) for i in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [len(list(ast.walk(ast.parse(f"{SOURCE}x = 1"))))] * 200
