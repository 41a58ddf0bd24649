"""Read an answer before it runs, for what nobody's answer needs and what would lead out of the names it is given.

What an answer may reach by name is seen to where it runs (:mod:`gradeworker.namespace`), and what it had the library
do is judged by what ran (:mod:`course.judging.operations`). Left to the reader are the few things that only the text
tells: names of the language's own machine room, and, of a kernel, all that is not a kernel. Nothing that the answer
names is imported here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from course.sources import MAX_SOURCE, Answer
from gradeworker import namespace

# What a class of a learner may define; the others change what isinstance, match or an assignment means.
OWN_METHODS = {
    "__init__", "__post_init__", "__new__", "__call__", "__len__", "__getitem__", "__setitem__", "__delitem__",
    "__contains__", "__iter__", "__next__", "__reversed__", "__repr__", "__str__", "__eq__", "__hash__", "__bool__",
    "__lt__", "__le__", "__gt__", "__ge__", "__add__", "__sub__", "__mul__", "__enter__", "__exit__", "__slots__",
    "__missing__", "__name__", "__doc__", "__all__", "__annotations__", "__match_args__",
}
MINE = {"self", "cls", "other"}  # names of one's own object, whose private parts one may ask for
OWN_TENSORS = ("Tensor", "Parameter")
LIBRARIES = {"torch", "F", "nn", "np", "numpy", "math"}


@dataclass(frozen=True)
class Finding:
    """One thing that is not let pass."""

    line: int
    message: str
    kind: str  # "denied": the exercise wants you to write it; "policy": no answer needs it; "syntax"


def inspect(source: str, given: tuple[str, ...] = (), kernel: bool = False, denied: tuple[str, ...] = ()
            ) -> list[Finding]:
    """Findings in ``source``, in order of line; an empty list when it may run.

    ``given``: modules below course.given that it may import. ``kernel``: the answer is Triton, so it may hold nothing
    but imports and ``@triton.jit`` functions that use their own names, each other and ``tl``, without ``denied`` ones.
    """
    answer = Answer.of(source)
    if len(answer) > MAX_SOURCE:
        return [Finding(0, f"the answer has more than {MAX_SOURCE:,} characters", "policy")]
    if isinstance(answer.problem, (RecursionError, MemoryError)):
        return [Finding(0, "this is nested too deeply to be read: give the parts names", "syntax")]
    if answer.problem is not None:
        line = getattr(answer.problem, "lineno", 0) or 0
        return [Finding(line, f"this is not Python: {answer.problem.args[0]}", "syntax")]
    reader = KernelReader(answer, denied) if kernel else Reader(given)
    found = [item for node in answer.nodes for item in reader.look(node)]
    return sorted({(item.line, item.message): item for item in found}.values(), key=lambda item: item.line)


def no_place(line: int, name: str) -> Finding:
    return Finding(line, f"{name} has no place in an answer", "policy")


class Reader:
    """What is looked at in plain Python, one method for each kind of node."""

    def __init__(self, given: tuple[str, ...] = ()):
        self.given = {f"course.given.{name}" for name in given}

    def look(self, node: ast.AST) -> Iterator[Finding]:
        yield from getattr(self, f"look_at_{type(node).__name__}", _nothing)(node)

    def look_at_Import(self, node: ast.Import) -> Iterator[Finding]:
        for alias in node.names:
            yield from self._module(alias.name, node.lineno)

    def look_at_ImportFrom(self, node: ast.ImportFrom) -> Iterator[Finding]:
        yield from self._module(node.module or "", node.lineno)
        for alias in node.names:
            if alias.name == "*":
                yield Finding(node.lineno, "name what you import instead of *", "policy")
            elif not namespace.reachable(alias.name):
                yield no_place(node.lineno, alias.name)

    def _module(self, name: str, line: int) -> Iterator[Finding]:
        above = {module.rpartition(".")[0] for module in self.given}
        if name.split(".")[0] == "llm_internals":
            yield Finding(line, "an answer stands on its own: it may not import llm_internals", "policy")
        elif name not in namespace.WINDOWS and name not in self.given | above:
            yield Finding(line, f"an answer may not import {name or 'relatively'}", "policy")

    def look_at_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        root = node.value
        while isinstance(root, ast.Attribute):
            root = root.value
        name = root.id if isinstance(root, ast.Name) else ""
        own = root is node.value and name in MINE and not node.attr.startswith("__")
        if name in LIBRARIES and not isinstance(node.ctx, ast.Load):
            yield Finding(node.lineno, f"an answer does not change what {name} is", "policy")
        elif not (own or namespace.reachable(node.attr)):
            yield no_place(node.lineno, node.attr)

    def look_at_Name(self, node: ast.Name) -> Iterator[Finding]:
        dunder = node.id.startswith("__") and node.id.endswith("__") and node.id not in OWN_METHODS
        if dunder or (node.id in namespace.NOT_BUILT_IN and isinstance(node.ctx, ast.Load)):
            yield no_place(node.lineno, node.id)

    def look_at_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
        if node.name.startswith("__") and node.name.endswith("__") and node.name not in OWN_METHODS:
            yield no_place(node.lineno, node.name)

    look_at_AsyncFunctionDef = look_at_FunctionDef

    def look_at_MatchClass(self, node: ast.MatchClass) -> Iterator[Finding]:
        if node.patterns or node.kwd_patterns:
            text = "a class pattern with parts reads attributes unseen: use if and a name"
            yield Finding(node.lineno, text, "policy")

    def look_at_ClassDef(self, node: ast.ClassDef) -> Iterator[Finding]:
        if node.keywords:
            yield Finding(node.lineno, "a class of an answer has no metaclass", "policy")
        if any(getattr(base, "attr", getattr(base, "id", "")).endswith(OWN_TENSORS) for base in node.bases):
            yield Finding(node.lineno, "an answer does not make a tensor of its own kind", "policy")


def _nothing(node: ast.AST) -> Iterator[Finding]:
    return iter(())


# Parts of triton.language that are modules or plumbing, and what lies below a tensor of the interpreter.
NOT_ON_A_TENSOR = {"core", "semantic", "standard", "extra", "random", "handle", "data", "builder", "fn", "src", "run"}
KERNEL_BUILTINS = {"range", "float", "int", "bool", "min", "max", "abs", "len", "True", "False", "None"}
KERNEL_IMPORTS = {("torch", None), ("triton", None), ("triton.language", "tl")}
NO_PART = "a kernel has no functions, imports, try, with, match, comprehensions or global inside"


class KernelReader:
    """A cell with kernels: the interpreter runs it as plain Python, so what it may hold is an allowlist.

    At the top stand imports, texts and kernels; inside a kernel its own names, those of the other kernels, and tl.
    """

    def __init__(self, answer: Answer, denied: tuple[str, ...]):
        self.denied = {name.lower() for name in denied}
        self.at_top = {id(node): node for node in answer.tree.body}
        kernels = [node for node in answer.tree.body if isinstance(node, ast.FunctionDef)]
        shared = {kernel.name for kernel in kernels} | KERNEL_BUILTINS | {"tl"}
        self.known: dict[int, set[str]] = {}  # by node inside a kernel: the names that stand for something there
        for kernel in kernels:
            inside = [node for statement in kernel.body for node in ast.walk(statement)]
            own = shared | {argument.arg for argument in ast.walk(kernel.args) if isinstance(argument, ast.arg)}
            own |= {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            self.known |= dict.fromkeys(map(id, inside), own)

    def look(self, node: ast.AST) -> Iterator[Finding]:
        if id(node) in self.at_top:
            yield from self._look_at_top(node)
        elif id(node) in self.known:
            yield from getattr(self, f"look_at_{type(node).__name__}", _nothing)(node)

    def _look_at_top(self, node: ast.stmt) -> Iterator[Finding]:
        if isinstance(node, ast.FunctionDef):
            if not _is_jit(node.decorator_list):
                yield Finding(node.lineno, f"{node.name} must be a kernel: put @triton.jit above it", "policy")
            if not all(map(_is_plain, _run_at_definition(node))):
                text = "defaults and annotations of a kernel are constants or tl.constexpr"
                yield Finding(node.lineno, text, "policy")
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg) and _is_quoted_constexpr(argument.annotation):
                    text = f"write {argument.arg}: tl.constexpr without quotation marks"
                    yield Finding(argument.lineno, text, "policy")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            if isinstance(node, ast.ImportFrom) or not all(map(_may_stand_above, node.names)):
                text = "a kernel's cell imports torch, triton and triton.language as tl; a kernel needs nothing else"
                yield Finding(node.lineno, text, "policy")
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            text = "a kernel's cell holds kernels only; the launch is given, a try of your own goes into another cell"
            yield Finding(node.lineno, text, "policy")

    def look_at_Name(self, node: ast.Name) -> Iterator[Finding]:
        if not isinstance(node.ctx, ast.Load):
            if node.id in {"tl", "triton", "torch"}:
                yield Finding(node.lineno, f"{node.id} keeps its meaning inside a kernel", "policy")
        elif node.id not in self.known[id(node)]:
            do = "tl.device_print('x', x) shows x" if node.id == "print" else "use tl, parameters and local names"
            yield Finding(node.lineno, f"{node.id} is not known inside a kernel: {do}", "policy")

    def look_at_Attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        if node.attr.lower() in self.denied:
            yield Finding(node.lineno, f"{node.attr} does the work this exercise asks you to write", "denied")
        elif node.attr in NOT_ON_A_TENSOR or node.attr.startswith("_") or not isinstance(node.ctx, ast.Load):
            yield Finding(node.lineno, f"{node.attr} has no place in a kernel", "policy")

    def look_at_Import(self, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
        name = getattr(node, "module", None) or node.names[0].name
        yield Finding(node.lineno, f"a kernel may not import {name}: {NO_PART}", "policy")

    look_at_ImportFrom = look_at_Import

    def _no_part(self, node: ast.AST) -> Iterator[Finding]:
        yield Finding(getattr(node, "lineno", 0), NO_PART, "policy")

    look_at_FunctionDef = look_at_AsyncFunctionDef = look_at_Lambda = look_at_ClassDef = _no_part
    look_at_Try = look_at_TryStar = look_at_With = look_at_AsyncWith = look_at_Match = _no_part
    look_at_Global = look_at_Nonlocal = _no_part
    look_at_ListComp = look_at_SetComp = look_at_DictComp = look_at_GeneratorExp = _no_part
    look_at_Yield = look_at_YieldFrom = look_at_Await = _no_part


def _may_stand_above(alias: ast.alias) -> bool:
    """What kernels are written with; or a harmless module, of other answers, that takes no name of theirs."""
    if (alias.name, alias.asname) in KERNEL_IMPORTS:
        return True
    package = alias.name.split(".")[0]
    harmless = alias.name in namespace.WINDOWS and package not in {"torch", "triton"}
    return harmless and (alias.asname or package) not in {"tl", "triton", "torch"}


def _is_jit(decorators: list[ast.expr]) -> bool:
    """Exactly ``@triton.jit``."""
    if len(decorators) != 1 or not isinstance(decorators[0], ast.Attribute):
        return False
    base = decorators[0].value
    return decorators[0].attr == "jit" and isinstance(base, ast.Name) and base.id == "triton"


def _run_at_definition(function: ast.FunctionDef) -> list[ast.expr | None]:
    """Defaults and annotations, which are run as plain Python when a kernel is defined."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    notes = [argument.annotation for argument in every if argument is not None] + [function.returns]
    return [*notes, *arguments.defaults, *arguments.kw_defaults, *getattr(function, "type_params", ())]


def _is_quoted_constexpr(annotation: ast.expr | None) -> bool:
    """Triton's interpreter takes that for an ordinary parameter."""
    return isinstance(annotation, ast.Constant) and "constexpr" in str(annotation.value)


def _is_plain(node: ast.expr | None) -> bool:
    """A constant, or a name of tl or torch."""
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id in {"tl", "torch"}
    return node is None or isinstance(node, ast.Constant)
