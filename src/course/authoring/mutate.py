"""`course proof --mutate`: solutions changed by machine, to find wrong answers that an exercise's cases let pass.

Every change is small and of a kind that people make: another constant, comparison or operator, a bound one off, a step
left out, two statements or arguments exchanged, a step rounded to the input's dtype. A mutant that passes is either
wrong, and the exercise needs a case or a near-miss, or right as well. Those that are right are listed with a reason in
``specs/<stem>/equivalent.yml``, so that only what nobody has judged yet is shown.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import difflib
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
import yaml

import course.specs
from course.authoring.build import solution_sources
from course.judging import judge
from course.judging.judge import Memory
from course.specs import exercises
from course.specs.exercise import Draw, Exercise
from gradeworker.answer import run

SEEDS = 4  # lists of hidden cases that a mutant is put through, besides the public ones
SECONDS = 2.0  # of this process, for one case: a mutant may run for ever
OTHER_COMPARISON = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
OTHER_OPERATOR = {
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,), ast.FloorDiv: (ast.Div,),
    ast.Pow: (ast.Mult,), ast.BitAnd: (ast.BitOr,),
}
OTHER_NAME = {
    "min": "max", "max": "min", "any": "all", "all": "any", "sum": "mean", "mean": "sum", "cos": "sin", "sin": "cos",
    "amax": "amin", "argmax": "argmin", "rsqrt": "sqrt", "sqrt": "rsqrt", "triu": "tril", "keys": "values",
}
CHANGING = {"append", "extend", "insert", "pop", "add_", "fill_", "copy_"}  # methods that write to their object
EXCHANGED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Pow, ast.MatMult)  # where the order of operands counts


class Endless(KeyboardInterrupt):
    """A mutant runs too long. Of this kind, since an answer's other exceptions are caught."""


@dataclass(frozen=True)
class Mutant:
    change: str  # "old line -> new line", by which equivalent.yml knows it
    source: str


@dataclass
class Found:
    """Of one exercise: how many mutants there are, and those that pass."""

    exercise: Exercise
    mutants: int = 0
    equivalent: int = 0
    survivors: list[str] = field(default_factory=list)  # no case finds them
    public: list[str] = field(default_factory=list)  # hidden cases find them, public ones do not
    stale: list[str] = field(default_factory=list)  # listed as equivalent, and found by the cases or no longer made


def mutate(stem: str | None = None) -> list[Found]:
    """What survives of each exercise's mutants."""
    with contextlib.suppress(ImportError):
        import kernelcheck

        kernelcheck.install()
    sources = solution_sources()
    return [mutate_one(item, sources[item.id], equivalents(item)) for item in exercises(stem)]


def equivalents(item: Exercise) -> set[str]:
    """Changes of the solution that are judged to be right as well."""
    path = Path(course.specs.__file__).parent / item.stem / "equivalent.yml"
    listed = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {change for group in (listed or {}).get(item.id, []) for change in group["changes"]}


def mutate_one(item: Exercise, source: str, known: set[str] = frozenset()) -> Found:
    """Run every mutant of ``source`` on the public cases and, when it passes, on hidden ones."""
    public = [Memory(item, [case]) for case in judge.public_cases(item.id, item.edition)]
    hidden = [Memory(item, [case]) for seed in range(SEEDS) for case in item.cases(Draw(f"mutate/{item.id}/{seed}"))]
    found, passed = Found(item), set()
    for mutant in mutants(source, item.track == "kernel", any(map(_in_half, public))):
        found.mutants += 1
        if not all(_passes(item, mutant.source, memory) for memory in public):
            continue
        passed.add(mutant.change)
        if mutant.change in known:
            found.equivalent += 1
        elif all(_passes(item, mutant.source, memory) for memory in hidden):
            found.survivors.append(mutant.change)
        else:
            found.public.append(mutant.change)
    found.stale = sorted(known - passed)
    return found


def _in_half(memory: Memory) -> bool:
    tensors = (value for case in memory.cases for value in case.args if isinstance(value, torch.Tensor))
    return any(value.dtype in (torch.float16, torch.bfloat16) for value in tensors)


def _passes(item: Exercise, source: str, memory: Memory) -> bool:
    try:
        with _limited(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcomes = list(run(item.job(source, judge.calls(memory.cases))))
    except Endless:
        return False
    return judge.judge(item, memory.cases, outcomes, diagnose=False, memory=memory).passed


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(*_):
        raise Endless

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def mutants(source: str, kernel: bool = False, half: bool = False) -> list[Mutant]:
    """All mutants of an answer, no two alike, none like the answer.

    ``half``: some cases are in half precision, so that it may matter where a step is rounded to it.
    """
    tree = ast.parse(source)
    plain = ast.unparse(tree)
    every = list(ast.walk(tree))
    silent = {every.index(part) for node in every if isinstance(node, ast.Raise) for part in ast.walk(node)}  # words
    found: dict[str, str] = {}
    for number in range(len(every)):
        for change in () if number in silent else _changes(tree, number, kernel, half):
            mutated = copy.deepcopy(tree)
            change(list(ast.walk(mutated))[number])
            with contextlib.suppress(SyntaxError, ValueError):  # some changes make no program
                text = ast.unparse(ast.fix_missing_locations(mutated))
                ast.parse(text)
                if text != plain:
                    found.setdefault(text, _described(plain, text))
    return [Mutant(change, text) for text, change in found.items()]


def _described(before: str, after: str) -> str:
    old, new = before.splitlines(), after.splitlines()
    parts = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            was, now = (" | ".join(line.strip() for line in lines) for lines in (old[a:b], new[c:d]))
            parts.append(f"{was or '(nothing)'} -> {now or '(nothing)'}")
    return "; ".join(parts)


def _changes(tree: ast.Module, number: int, kernel: bool, half: bool) -> Iterator[Callable[[ast.AST], None]]:
    """What may be done to the node with this number: functions that change it in place in a copy of the tree."""
    node = list(ast.walk(tree))[number]
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.expr):
            for new in _instead(value, tree, kernel):
                yield lambda each, name=name, new=new: setattr(each, name, new)
        elif isinstance(value, list):
            for place, part in enumerate(value):
                if isinstance(part, ast.expr) and name != "decorator_list":
                    for new in _instead(part, tree, kernel):
                        yield lambda each, name=name, place=place, new=new: getattr(each, name).__setitem__(place, new)
            if value and isinstance(value[0], ast.stmt) and not isinstance(node, ast.Module):
                yield from _statements(name, value)
    if isinstance(node, (ast.For, ast.While)):
        yield lambda each: each.body.append(ast.Break())
    if isinstance(node, ast.AugAssign):
        yield lambda each: setattr(each, "op", ast.Sub())
    if isinstance(node, ast.Assign) and isinstance(node.value, (ast.BinOp, ast.Call)):
        pointer = _first_parameter(tree)
        rounded = f".to({pointer}.dtype.element_ty)" if kernel else f".to({pointer}.dtype)"
        for end in (rounded, rounded + (".to(tl.float32)" if kernel else ".float()")) if half else ():
            yield lambda each, end=end: setattr(each, "value", _followed(each.value, end))
    if isinstance(node, ast.Call):
        for place in range(len(node.keywords)):
            yield lambda each, place=place: each.keywords.pop(place)
        if len(node.args) > 1:
            yield lambda each: each.args.insert(0, each.args.pop(1))
    if isinstance(node, ast.Slice):
        for bound in ("lower", "upper"):
            if getattr(node, bound) is not None:
                yield lambda each, bound=bound: setattr(each, bound, None)


def _followed(value: ast.expr, end: str) -> ast.expr:
    return ast.parse(f"({ast.unparse(value)}){end}", mode="eval").body


def _statements(name: str, body: list[ast.stmt]) -> Iterator[Callable[[ast.AST], None]]:
    """A statement left out, or exchanged with the one below."""
    for place, statement in enumerate(body):
        if _is_docstring(statement):
            continue
        yield lambda each, place=place: getattr(each, name).__setitem__(place, ast.Pass())
        if place:
            def swap(each, place=place):
                block = getattr(each, name)
                block[place - 1], block[place] = block[place], block[place - 1]

            if not _is_docstring(body[place - 1]) and _order_counts(body[place - 1], statement):
                yield swap


def _order_counts(one: ast.stmt, other: ast.stmt) -> bool:
    """May it matter which of two statements comes first? Not when neither writes what the other reads or writes."""
    if isinstance(one, ast.FunctionDef) or isinstance(other, ast.FunctionDef):
        return False
    if any(isinstance(part, (ast.Return, ast.Break, ast.Raise)) for each in (one, other) for part in ast.walk(each)):
        return True
    (reads, writes), (also_reads, also_writes) = _touched(one), _touched(other)
    return bool(writes & (also_reads | also_writes) or also_writes & reads)


def _touched(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """What a statement reads and writes: names; of an object the key or the attribute, as far as it is written out."""
    reads: set[str] = set()
    writes: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            (reads if isinstance(node.ctx, ast.Load) else writes).add(node.id)
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            writes.add(ast.unparse(node))
            reads.add(ast.unparse(node))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            reads.add(node.target.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            writes.add(ast.unparse(node.func.value))
    return reads, writes


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _instead(node: ast.expr, tree: ast.Module, kernel: bool) -> Iterator[ast.expr]:
    """Expressions that may stand in the place of this one."""
    if isinstance(node, ast.Constant):
        yield from map(ast.Constant, _other_constants(node.value))
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in OTHER_COMPARISON[type(node.ops[0])]:
            yield ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.BinOp):
        for other in OTHER_OPERATOR.get(type(node.op), ()):
            yield ast.BinOp(node.left, other(), node.right)
        if isinstance(node.op, EXCHANGED):
            yield ast.BinOp(node.right, node.op, node.left)
        yield node.left
        yield node.right
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        yield from node.values
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
            yield node.func.value  # without the call: x.float() becomes x
        elif len(node.args) == 1:
            yield node.args[0]
        for name in ("id", "attr"):
            other = OTHER_NAME.get(getattr(node.func, name, ""))
            if other:
                yield ast.Call(_renamed(node.func, name, other), node.args, node.keywords)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        names = _parameters(tree)
        if node.id in names:
            alike = [name for name in names if name.isupper() == node.id.isupper() and name != node.id]
            yield from (ast.Name(name, ast.Load()) for name in alike)
    if isinstance(node, ast.Slice):
        for bound in ("lower", "upper"):
            value = getattr(node, bound)
            if value is not None and not isinstance(value, ast.Constant):
                for step in (ast.Add(), ast.Sub()):
                    moved = ast.BinOp(value, step, ast.Constant(1))
                    yield ast.Slice(**{"lower": node.lower, "upper": node.upper, bound: moved})
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name):
        for step in (ast.Add(), ast.Sub()):
            yield ast.Subscript(node.value, ast.BinOp(node.slice, step, ast.Constant(1)), node.ctx)


def _other_constants(value: object) -> list:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [value * 2, 0.0] if value else [1.0]
    return []


def _renamed(function: ast.expr, name: str, other: str) -> ast.expr:
    renamed = copy.deepcopy(function)
    setattr(renamed, name, other)
    return renamed


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"torch", "math", "tl", "F", "re", "parts", "codecs"}


def _parameters(tree: ast.Module) -> list[str]:
    """Parameters of all functions of an answer; a kernel's pointers are written in capitals."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return list(dict.fromkeys(each.arg for function in functions for each in function.args.args))


def _first_parameter(tree: ast.Module) -> str:
    return next(name for name in _parameters(tree) if name != "self")
