"""What an exercise is: its signature, its cases, its tolerance, and the mistakes it can name.

A spec (``course/specs/<stem>/<exercise>.py``) makes one :class:`Exercise` and attaches near-misses and alternates to it.
A near-miss is an edit of the course's own solution, so that the mistake is all there is to read; one that computes in
another way, and every alternate, is a decorated function, real, linted code:

    RMS_NORM = Exercise(id="transformer_block.rms_norm", ..., reference=..., cases=...)

    RMS_NORM.near_miss(
        "the weight is missing",
        {" * weight": ""},
        says="Each channel has a scale of its own: multiply by weight at the end.",
    )

    @RMS_NORM.alternate("by division, in fp64")
    def rms_norm(x, weight, eps):
        ...

Only the source text of such a function is used: it is run as an answer, after the exercise's prelude.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import random
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

import torch

from course import sources
from course.specs import solutions
from gradeworker.answer import Job
from gradeworker.wire import Build

KERNEL_PRELUDE = "import torch\nimport triton\nimport triton.language as tl\n"
PRELUDE = "import math\n\nimport torch\nimport torch.nn.functional as F\n"

__all__ = ["KERNEL_PRELUDE", "PRELUDE", "Build", "Case", "Draw", "Exercise", "Tolerance"]


@dataclass(frozen=True)
class Tolerance:
    """Right when error ≤ max(4 × error of the reference in the same dtype, c · eps · √K · scale).

    ``K`` is the length of the longest sum in the computation; eps that of the result's dtype; scale the largest
    magnitude of the fp64 reference.
    """

    c: float = 8.0
    K: int = 1


@dataclass(frozen=True)
class Case:
    """One call. ``args`` and ``kwargs`` hold tensors, numbers, strings, bytes, lists, tuples, dicts, Build.

    ``label`` says in a few words what is special about it ("7 rows, one of them zero"): it is shown to the learner.
    ``tolerance`` replaces the exercise's for this call: half precision and scores of 100 need different ones.
    ``bytes_bound`` is set in a student edition only, where it stands for the exercise's function of that name.
    """

    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    label: str = ""
    tolerance: Tolerance | None = None
    bytes_bound: int | None = None


class Draw:
    """Random material for cases, from one seed: the same seed gives the same cases on every machine."""

    def __init__(self, seed: int | str):
        self.random = random.Random(seed)
        self._torch = torch.Generator().manual_seed(self.random.getrandbits(62))

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
        """Normal values; drawn in fp64 and rounded, so that all dtypes see the same numbers."""
        return (torch.randn(shape, generator=self._torch, dtype=torch.float64) * scale).to(dtype)

    def ints(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """int64 values in [low, high)."""
        return torch.randint(low, high, shape, generator=self._torch)

    def int(self, low: int, high: int) -> int:
        """One integer, both ends included."""
        return self.random.randint(low, high)

    def choice(self, options: Sequence) -> Any:
        return self.random.choice(list(options))

    def strided(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
        """As :meth:`randn`, but a view with its two last axes swapped in memory: not contiguous when both are > 1."""
        swapped = shape[:-2] + (shape[-1], shape[-2])
        return self.randn(*swapped, dtype=dtype, scale=scale).transpose(-1, -2)


class _Written:
    """Has ``text``: source, or what makes it, since most commands that load a chapter never ask for it."""

    text: str | Callable[[], str]

    @functools.cached_property
    def source(self) -> str:
        return self.text if isinstance(self.text, str) else self.text()


@dataclass(frozen=True)
class NearMiss(_Written):
    """A plausible wrong answer and the diagnosis it must get."""

    name: str
    says: str
    text: str | Callable[[], str]
    section: str = ""


@dataclass(frozen=True)
class Alternate(_Written):
    """A right answer written otherwise: it must pass."""

    name: str
    text: str | Callable[[], str]


@dataclass
class Exercise:
    """One task, and all that is needed to judge an answer to it."""

    id: str  # stem.name, as in the marker `# answer: kv_cache.append`
    title: str
    signature: str  # as the learner writes it: "rms_norm(x, weight, eps)"; a class: "class KVCache"
    reference: Callable  # called with the case's arguments, in their dtype and again in fp64
    cases: Callable[[Draw], list[Case]]  # public with a fixed seed, hidden with a secret one
    hints: tuple[str, str, str]  # each stronger than the one before
    section: str  # where to reread: "03_transformer_block.html#rms-norm"
    points: int = 1
    core: bool = False
    track: str = "torch"
    difficulty: int = 1  # 1 to 5
    minutes: int = 10
    tolerance: Tolerance = Tolerance()
    mutates: frozenset[str] = frozenset()  # names of arguments that the answer may change
    denied: tuple[str, ...] = ()  # names it must do without: "softmax", "rms_norm", "scaled_dot_product_attention"
    prelude: str = PRELUDE  # what the answer finds imported: the notebook's first given cell
    given: tuple[str, ...] = ()  # modules below course.given whose source travels with the job
    drive: Callable | None = None  # drive(answer, *args): how a class or a generator is put through a case
    bytes_bound: Callable | None = None  # kernel: bytes_bound(*args) that it may move, counted without a cache
    in_model: bool = False  # can it be tried in the real model? Then course.check.in_model knows how
    argument_names: tuple[str, ...] = ()  # of a case's args, when they are not the signature's own
    seconds: float = 10.0  # wall-clock limit for all cases in the worker
    near_misses: list[NearMiss] = field(default_factory=list)
    alternates: list[Alternate] = field(default_factory=list)
    # A constant that stands at the top of the answer's cell, and what it may be: the first is what the course prints.
    # `reference` (and `cases`, where it cares) takes it as a keyword of that name.
    variants: dict[str, tuple] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)  # of a student's edition (see for_student); else empty

    @property
    def stem(self) -> str:
        return self.id.split(".")[0]

    @property
    def entry(self) -> str:
        """The name that the answer must define."""
        return re.match(r"(?:class\s+)?(\w+)", self.signature).group(1)

    @property
    def cell_id(self) -> str:
        """Cell id and nbgrader grade_id: the id with a dash for the dot."""
        return self.id.replace(".", "-")

    @property
    def edition(self) -> tuple:
        """The constants of a student's edition, to be told apart by; empty for the exercise as the course prints it."""
        return tuple(sorted(self.constants.items()))

    def editions(self) -> list[dict[str, Any]]:
        """Constants of all editions there can be, the printed one first; none for an exercise without variants."""
        if not self.variants:
            return []
        return [dict(zip(self.variants, values)) for values in itertools.product(*self.variants.values())]

    def for_student(self, constants: dict[str, Any]) -> Exercise:
        """The edition with these constants: its cases, its reference, its right and wrong answers.

        An answer that holds the constants of another edition is a mistake of its own there. Raises ValueError for
        a constant or a value that the exercise does not know.
        """
        for name, value in constants.items():
            if name not in self.variants or value not in self.variants[name]:
                options = "; ".join(f"{key} is one of {', '.join(map(literal, some))}"
                                    for key, some in self.variants.items())
                raise ValueError(f"{self.id}: {name} = {value!r} is none of its constants ({options or 'it has none'})")
        mine = {**self.editions()[0], **constants} if self.variants else {}
        others = [other for other in self.editions() if other != mine]
        foreign = [
            NearMiss(f"{FOREIGN}: {assignments(other)}", f"Your edition asks for {assignments(mine)}: it stands at the top "
                     "of the cell as it was given to you.", substitute(self.alternates[0].source, other), self.section)
            for other in others
        ]
        return replace(
            self, constants=mine, reference=_told(self.reference, mine), cases=_told(self.cases, mine),
            near_misses=[replace(near, text=substitute(near.source, mine)) for near in self.near_misses] + foreign,
            alternates=[replace(other, text=substitute(other.source, mine)) for other in self.alternates],
        )

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of a case's arguments, in order."""
        if self.argument_names:
            return self.argument_names
        inside = re.search(r"\((.*)\)", self.signature)
        names = inside.group(1).split(",") if inside else []
        return tuple(name.split("=")[0].split(":")[0].strip() for name in names if name.strip())

    def near_miss(
        self, name: str, edit: dict[str, str] | None = None, *, says: str, section: str = "", of: str = ""
    ) -> Callable | None:
        """A wrong answer that must get this diagnosis.

        ``edit``: what makes it of the course's solution (see :mod:`course.specs.solutions`), or of the alternate that
        is called ``of``. Without one this is a decorator, and the function or class below is the wrong answer.
        """

        def keep(text: Callable[[], str]) -> None:
            self.near_misses.append(NearMiss(name, says, text, section or self.section))

        if edit is not None:
            return keep(functools.partial(self._edited, name, edit, of))

        def attach(answer: Any) -> Any:
            keep(functools.partial(self._answer_source, answer))
            return answer

        return attach

    def _edited(self, name: str, edit: dict[str, str], of: str) -> str:
        """The solution, or an alternate, with the edit of a near-miss. Raises ValueError that names the near-miss."""
        try:
            if not of:
                return solutions.edited(solutions.solution(self.id), edit)
            bases = [other.source for other in self.alternates if other.name == of]
            if not bases:
                raise ValueError(f"there is no alternate {of!r}")
            return solutions.edited(bases[0], edit)
        except ValueError as error:
            raise ValueError(f"{self.id}, near-miss {name!r}: {error}") from None

    def alternate(self, name: str) -> Callable:
        """Decorator: the function or class below is right, written otherwise."""

        def attach(answer: Any) -> Any:
            self.alternates.append(Alternate(name, functools.partial(self._answer_source, answer)))
            return answer

        return attach

    def _answer_source(self, answer: Any) -> str:
        """Source of an answer; a kernel's decorator is put back, since a spec is imported where Triton is missing."""
        text = source_of(answer)
        if self.track == "kernel":
            return f"@triton.jit\n{text}"
        return "".join(f"{name} = {literal(some[0])}\n" for name, some in self.variants.items()) + text

    @property
    def driver(self) -> str:
        """Source of ``drive`` as it travels with a job; empty where the answer itself is called."""
        return re.sub(r"^def \w+", "def drive", source_of(self.drive)) if self.drive is not None else ""

    def bound(self, case: Case) -> int | None:
        """Bytes that a kernel may move in this case; None where nothing bounds them."""
        if case.bytes_bound is not None:
            return case.bytes_bound
        return self.bytes_bound(*case.args, **case.kwargs) if self.bytes_bound is not None else None

    def job(self, source: str, cases: list[Case]) -> Job:
        """The job that runs ``source`` on ``cases``; it holds nothing that tells what is expected."""
        return Job(
            id=self.id,
            entry=self.entry,
            source=str(source),  # plain text: what travels is encoded by its exact type
            prelude=self.prelude,
            modules={f"course.given.{name}": given_source(name) for name in self.given},
            driver=self.driver,
            kernel=self.track == "kernel",
            cases=[(case.args, case.kwargs) for case in cases],
        )


FOREIGN = "the constant of another edition"


@functools.cache
def given_source(name: str) -> str:
    """Source text of the given module ``course.given.<name>``."""
    return resources.files("course.given").joinpath(f"{name}.py").read_text(encoding="utf-8")


def literal(value: Any) -> str:
    """A constant as it is written in a notebook: 10_000.0, 1e-05."""
    return f"{value:_}" if type(value) in (int, float) else repr(value)


def assignments(constants: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {literal(value)}" for name, value in constants.items())


def substitute(text: str, constants: dict[str, Any]) -> str:
    """The text with every ``NAME = number`` of these constants rewritten; for code and prose alike."""
    for name, value in constants.items():
        text = re.sub(rf"\b{name} = [0-9][0-9_.eE+-]*(?<![.+-])", f"{name} = {literal(value)}", text)
    return text


def _told(function: Callable, constants: dict[str, Any]) -> Callable:
    """The function with those of the constants as keywords that it takes."""
    known = {name: value for name, value in constants.items() if name in inspect.signature(function).parameters}
    return functools.partial(function, **known) if known else function


def source_of(thing: Any) -> str:
    """Source of a function or class without its decorators and common indentation."""
    whole = _source_of_class(thing) if inspect.isclass(thing) else inspect.getsource(thing)
    lines = textwrap.dedent(whole).splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if re.match(r"(def|class) ", line))
    return "".join(lines[start:])


def _source_of_class(cls: type) -> str:
    """A spec module holds several classes of one name, and inspect would take the first: ask a method for its line."""
    functions = (getattr(member, "fget", member) for member in vars(cls).values())
    line = next(function.__code__.co_firstlineno for function in functions if inspect.isfunction(function))
    text = inspect.getsource(inspect.getmodule(cls))
    start, end = next(
        (first, last) for name, first, last in _classes(text) if name == cls.__name__ and first <= line <= last
    )
    return "".join(text.splitlines(keepends=True)[start - 1 : end])


@functools.lru_cache(maxsize=32)
def _classes(text: str) -> tuple[tuple[str, int, int], ...]:
    """Name, first and last line of every class of a module."""
    nodes = (node for node in ast.walk(sources.parse(text)) if isinstance(node, ast.ClassDef))
    return tuple((node.name, node.lineno, node.end_lineno) for node in nodes)
