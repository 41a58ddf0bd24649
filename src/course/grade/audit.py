"""What an instructor may want to look at: odd, but not forbidden. A hint with its reason; it never changes a point."""

from __future__ import annotations

import ast
import io
import tokenize
import unicodedata

from course.sources import Answer
from course.specs.exercise import Exercise

MANY_ENTRIES = 48  # of a literal: more is a table
LONG_TEXT = 400  # characters of a string that is no docstring
MANY_SIZES = 3  # comparisons of a shape or length with a number that no algorithm needs
LONG_LINE = 600
MOST = 5  # reasons kept for one answer
SIZES = {"shape", "size", "numel", "len", "stride", "dim", "ndim"}
WITHIN = {"id", "hash", "dir", "type"}
CACHES = {"cache", "lru_cache", "cached_property"}


def look_at(item: Exercise, source: str) -> list[str]:
    """Reasons to look at this answer, each with its line; empty for what is ordinary."""
    answer = Answer.of(source)
    if answer.tree is None:
        return []  # the verdict says what is wrong with it
    try:
        found = sorted({*_tables(answer), *_sizes(answer), *_memory(answer), *_reaches(answer),
                        *_words(answer, item.denied), *_letters(answer), *_unused(answer, item)})
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return []  # what tokenize does not read, a worker may
    return [f"line {line}: {text}" if line else text for line, text in found[:MOST]]


def _tables(answer: Answer):
    docstrings = _docstrings(answer)
    for node in answer.nodes:
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)) and len(node.elts) > MANY_ENTRIES:
            yield node.lineno, f"a literal of {len(node.elts)} entries: is it a table of results?"
        elif isinstance(node, ast.Dict) and len(node.keys) > MANY_ENTRIES:
            yield node.lineno, f"a literal of {len(node.keys)} entries: is it a table of results?"
        elif isinstance(node, ast.Constant) and id(node) not in docstrings:
            if isinstance(node.value, (str, bytes)) and len(node.value) > LONG_TEXT:
                yield node.lineno, f"a text of {len(node.value)} characters: does it hold data?"
            elif type(node.value) is int and node.value.bit_length() > 128:
                yield node.lineno, f"a number of {node.value.bit_length()} bits: does it hold data?"


def _sizes(answer: Answer):
    """Shapes and lengths compared with plain numbers: one or two are edge cases, many are cases learned by heart."""
    hits = []
    for node in answer.nodes:
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        sides += [node.subject] if isinstance(node, ast.Match) else []
        fixed = isinstance(node, ast.Match) or any(_number(side) for side in sides)
        if fixed and any(_is_size(side) for side in sides):
            hits.append(node.lineno)
    if len(hits) >= MANY_SIZES:
        yield min(hits), f"shapes are compared with {len(hits)} fixed numbers: are cases told apart by their size?"


def _number(node: ast.AST) -> bool:
    """A number above 1, or a tuple of numbers."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(isinstance(each, ast.Constant) for each in node.elts)
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value > 1


def _is_size(node: ast.AST) -> bool:
    names = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return bool(names & SIZES)


def _memory(answer: Answer):
    """What lives on from one call to the next."""
    functions = [node for node in answer.nodes if isinstance(node, ast.FunctionDef)]
    for node in answer.nodes:
        if isinstance(node, ast.Global):
            yield node.lineno, "a global variable: what lives on between calls?"
    for function in functions:
        if any(_last_name(each) in CACHES for each in function.decorator_list):
            yield function.lineno, f"{function.name} keeps its results: what lives on between calls?"
        defaults = [*function.args.defaults, *filter(None, function.args.kw_defaults)]
        if any(isinstance(each, (ast.List, ast.Dict, ast.Set)) for each in defaults):
            yield function.lineno, f"{function.name} has a default that can change: what lives on between calls?"
        for node in ast.walk(function):
            target = node.value if isinstance(node, (ast.Attribute, ast.Subscript)) else None
            if isinstance(target, ast.Name) and isinstance(node.ctx, ast.Store) and any(
                    target.id == other.name for other in functions):
                yield node.lineno, f"{target.id} writes on itself: what lives on between calls?"


def _reaches(answer: Answer):
    for node in answer.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WITHIN:
            yield node.lineno, f"{node.func.id}(...) asks what an object is, not what it holds"
        elif isinstance(node, ast.Attribute) and node.attr in {"initial_seed", "get_rng_state", "set_rng_state"}:
            yield node.lineno, f"{node.attr} reads or sets the state of chance"
        elif isinstance(node, ast.ExceptHandler) and _last_name(node.type) in {"", "Exception", "BaseException"}:
            yield node.lineno, "whatever goes wrong is caught: what is done instead?"


def _words(answer: Answer, denied: tuple[str, ...]):
    docstrings = _docstrings(answer)
    for node in answer.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            named = next((word for word in denied if word in node.value.lower()), None)
            if named:
                yield node.lineno, f"the text {node.value[:40]!r} names {named}, which this exercise does without"


def _letters(source: str):
    for number, line in enumerate(source.splitlines(), start=1):
        if len(line) > LONG_LINE:
            yield number, f"a line of {len(line)} characters"
        odd = next((char for char in line if unicodedata.category(char) in {"Cf", "Co", "Cc"} and char != "\t"), None)
        if odd is not None:
            yield number, f"a character that cannot be seen (U+{ord(odd):04X})"
    for token in tokenize.generate_tokens(io.StringIO(source).readline):  # ast would show the plain letters only
        odd = token.type == tokenize.NAME and not token.string.isascii()
        if odd and unicodedata.normalize("NFKC", token.string).isascii():
            yield token.start[0], f"the name {token.string!r} only looks like plain letters"


def _unused(answer: Answer, item: Exercise):
    """An answer that reads none of its arguments gives the same whatever it is asked."""
    for node in answer.tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == item.entry:
            wanted = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
            read = {each.id for statement in node.body for each in ast.walk(statement) if isinstance(each, ast.Name)}
            if wanted and not wanted & read:
                yield node.lineno, f"{item.entry} reads none of its arguments"


def _docstrings(answer: Answer) -> set[int]:
    return {id(node.value) for node in answer.nodes if isinstance(node, ast.Expr)}


def _last_name(node: ast.AST | None) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
