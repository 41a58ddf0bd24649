"""Python source as a syntax tree, from any thread.

CPython 3.11 counts the depth of a tree under construction once for all threads: two that parse at the same time may end
in ``SystemError: AST constructor recursion depth mismatch``. So they take turns.
"""

from __future__ import annotations

import ast
import threading

_turn = threading.Lock()


def parse(source: str) -> ast.Module:
    """As :func:`ast.parse`, with its errors: SyntaxError, ValueError, RecursionError, MemoryError."""
    with _turn:
        return ast.parse(source)
