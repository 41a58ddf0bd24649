"""Trees are those of `ast`, kept for a while and walked once."""

import ast
import threading

import pytest

from course import syntax

SOURCE = "def f(x, /, *y: int):\n    return [a for a in x if a] + (lambda b: b)(y)\n"


def test_the_tree_and_the_walk_are_those_of_ast():
    tree = syntax.parse(SOURCE)
    assert ast.dump(tree) == ast.dump(ast.parse(SOURCE))
    assert [type(node) for node in syntax.walk(tree)] == [type(node) for node in ast.walk(ast.parse(SOURCE))]
    assert syntax.walk(tree) is syntax.walk(syntax.parse(SOURCE))


def test_long_sources_are_not_kept():
    long = "x = 1\n" * (syntax.REMEMBERED // 6 + 1)
    assert syntax.parse(long) is not syntax.parse(long)
    assert len(syntax.walk(syntax.parse(long))) > syntax.REMEMBERED // 6


@pytest.mark.parametrize("source", ["def f(:", "x = '\0'", "a" + "(" * 500 + ")" * 500])
def test_errors_are_raised_each_time(source):
    for _ in range(2):
        with pytest.raises((SyntaxError, ValueError, RecursionError, MemoryError)):
            syntax.parse(source)


def test_many_threads_parse_at_once():
    found = []

    def look(source: str) -> None:
        found.append(len(syntax.walk(syntax.parse(source))))

    threads = [threading.Thread(target=look, args=(f"{SOURCE}x = {i % 40}",)) for i in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [len(list(ast.walk(ast.parse(f"{SOURCE}x = 1"))))] * 200
