"""An answer as text, and what can be said of it without running it: each thing once, when it is asked for.

A submission's cells become :class:`Answer` when the notebook is read; the gate, the secret, progress and reports then
ask that object, and nobody parses a text again.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import threading

MAX_SOURCE = 100_000  # characters; the longest solution has under 3,000, and parsing more takes its time
MARKER = re.compile(r"^\s*#\s*answer\s*:\s*([\w.\-]+)\s*$")
MAGIC = re.compile(r"^[ \t]*(?:%%?[a-zA-Z]|!|\?)")  # a line that IPython takes for itself
WAS_MAGIC = re.compile(r"^[ \t]*# (?:%%?[a-zA-Z]|!|\?)")
CELL_MAGICS = re.compile(r"^\s*%%(?:time|timeit|capture|prun|python3?)\b")  # below these stands plain Python
COURSE_CALLS = {"check", "hint", "kernel_report", "predict", "reveal", "status", "try_in_model"}
SHAPED = 40  # nodes of a syntax tree; fewer have no shape of their own
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # what parsing a text may end in
_turn = threading.Lock()


def parse(source: str) -> ast.Module:
    """As :func:`ast.parse`, with its errors (:data:`UNREADABLE`), from any thread.

    CPython 3.11 counts the depth of a tree under construction once for all threads: two that parse at the same time may
    end in ``SystemError: AST constructor recursion depth mismatch``. So they take turns.
    """
    with _turn:
        return ast.parse(source)


class Answer(str):
    """The text of one answer. It is that text wherever a string is wanted.

    ``elsewhere``: names that other cells of its notebook define, so that a missing one can be told to be moved in.
    """

    elsewhere: frozenset[str] = frozenset()

    @classmethod
    def of(cls, source: str) -> Answer:
        """The answer with this text; one that is an answer already is handed back."""
        return source if isinstance(source, cls) else cls(source)

    @functools.cached_property
    def marked_id(self) -> str | None:
        """The exercise id in the first line that is neither empty nor a magic, or None."""
        for line in self.splitlines():
            if line.strip() and not MAGIC.match(line) and not WAS_MAGIC.match(line):
                match = MARKER.match(line)
                return match.group(1) if match else None
        return None

    @functools.cached_property
    def normal(self) -> str:
        """The text without what editors change by themselves: line ends, trailing blanks, empty lines around it."""
        text = self.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        return "\n".join(line.rstrip() for line in text.strip().split("\n")) + "\n"

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of :attr:`normal`."""
        return hashlib.sha256(self.normal.encode("utf-8", "surrogatepass")).hexdigest()

    @functools.cached_property
    def _parsed(self) -> tuple[ast.Module | None, Exception | None]:
        if len(self) > MAX_SOURCE:
            return None, ValueError(f"more than {MAX_SOURCE:,} characters")
        try:
            return parse(self), None
        except UNREADABLE as error:
            return None, error.with_traceback(None)

    @property
    def tree(self) -> ast.Module | None:
        """The syntax tree, to be read and not changed; None where there is none, and :attr:`problem` says why."""
        return self._parsed[0]

    @property
    def problem(self) -> Exception | None:
        """Why there is no tree: SyntaxError, ValueError, RecursionError or MemoryError; None where there is one."""
        return self._parsed[1]

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree, in the order of :func:`ast.walk`; none where there is no tree."""
        return tuple(ast.walk(self.tree)) if self.tree is not None else ()

    @functools.cached_property
    def is_stub(self) -> bool:
        """Has the learner not begun yet? The stub says where to begin, and raises there.

        The two lines may be left standing below a finished answer, where nothing reaches them.
        """
        lines = [line.strip() for line in self.splitlines()]
        asks = any(
            line == "# YOUR CODE HERE" and following.startswith("raise NotImplementedError")
            for line, following in zip(lines, lines[1:])
        )
        return asks and len(self) <= MAX_SOURCE and (self.tree is None or any(map(_raises_first, self.nodes)))

    @functools.cached_property
    def shape(self) -> str:
        """Digest of the kinds of nodes, names and texts apart; "" where they are too few to tell two people apart."""
        kinds = [type(node).__name__ for node in self.nodes if not isinstance(node, ast.Load)]
        return hashlib.sha256(" ".join(kinds).encode()).hexdigest()[:16] if len(kinds) > SHAPED else ""


def as_code(text: str) -> Answer:
    """A cell's text with what only a notebook understands turned into comments, line for line.

    That is: magics (``%matplotlib inline``, ``!pip``, ``%%time`` at the top, but none that makes the cell another
    language) and calls of the course's own checks that were left standing in an answer's cell.
    """
    answer = Answer.of(text)
    if answer.tree is None and any(map(MAGIC.match, answer.splitlines())):
        answer = _without_magics(answer)
    marked = {number for node in (answer.tree.body if answer.tree is not None else ()) if _is_the_courses(node)
              for number in range(node.lineno, node.end_lineno + 1)}
    return _commented(answer, marked) if marked else answer


def _without_magics(answer: Answer) -> Answer:
    """The text with its magics as comments, if it is Python then; else as it was."""
    lines = answer.splitlines()
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("%%") and not CELL_MAGICS.match(first):
        return answer
    found = _commented(answer, {number for number, line in enumerate(lines, start=1) if MAGIC.match(line)})
    return found if found.tree is not None else answer


def _is_the_courses(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in {"course.check", "course.check.kernels"}
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in COURSE_CALLS


def _commented(answer: Answer, numbers: set[int]) -> Answer:
    """The answer with these lines as comments; inside a block a ``pass`` keeps their place."""
    lines = answer.splitlines()
    for number in numbers:
        line = lines[number - 1]
        indent = line[: len(line) - len(line.lstrip())]
        lines[number - 1] = f"{indent}{'pass  ' if indent else ''}# {line.lstrip()}"
    return Answer("\n".join(lines) + "\n" * answer.endswith("\n"))


def defined_in(answer: Answer) -> frozenset[str]:
    """Names that a cell defines at its top level."""
    found: set[str] = set()
    for node in answer.tree.body if answer.tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        else:
            found.update(part.id for part in ast.walk(node)
                         if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
    return frozenset(found)


def split_at_markers(answer: Answer) -> list[Answer]:
    """A cell that holds several answers, each below its marker, taken apart; what stands above the first is in each."""
    lines = answer.splitlines()
    starts = [number for number, line in enumerate(lines) if MARKER.match(line)]
    if len(starts) < 2:
        return [answer]
    above = [line for line in lines[: starts[0]] if not MAGIC.match(line)]
    return [Answer("\n".join([lines[start], *above, *lines[start + 1 : end]]) + "\n")
            for start, end in zip(starts, [*starts[1:], len(lines)])]


def _raises_first(node: ast.AST) -> bool:
    """Does a block of this node come to ``raise NotImplementedError`` before it returns or raises anything else?"""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        for statement in block if isinstance(block, list) else ():
            if isinstance(statement, ast.Raise) and any(
                isinstance(part, ast.Name) and part.id == "NotImplementedError" for part in ast.walk(statement)
            ):
                return True
            if isinstance(statement, (ast.Return, ast.Raise)):
                break
    return False
