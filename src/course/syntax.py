"""Python source as a syntax tree, from any thread.

CPython 3.11 counts the depth of a tree under construction once for all threads: two that parse at the same time may end
in ``SystemError: AST constructor recursion depth mismatch``. So they take turns.
"""

from __future__ import annotations

import ast
import functools
import threading

REMEMBERED = 20_000  # characters; the trees of longer sources take too much memory to be kept
_turn = threading.Lock()


def parse(source: str) -> ast.Module:
    """As :func:`ast.parse`, with its errors: SyntaxError, ValueError, RecursionError, MemoryError.

    Several looks are taken at one answer, so the last trees are kept: read them, don't change them.
    """
    return _parse_and_keep(source) if len(source) <= REMEMBERED else _parse(source)


def walk(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a tree that :func:`parse` gave, in the order of :func:`ast.walk`; walked only once."""
    nodes = getattr(tree, "_every_node", None)
    if nodes is None:
        nodes = tree._every_node = list(ast.walk(tree))
    return nodes


def _parse(source: str) -> ast.Module:
    with _turn:
        return ast.parse(source)


_parse_and_keep = functools.lru_cache(maxsize=16)(_parse)
