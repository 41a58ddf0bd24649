"""No module leads on to another, no text becomes code or the name of an attribute; honest answers miss nothing."""

import subprocess
import sys
import types

import pytest

from gradeworker import namespace
from gradeworker.answer import Job, run

PRELUDE = "import math\n\nimport torch\nimport torch.nn.functional as F\n"


def ran(body: str, prelude: str = PRELUDE, **fields):
    source = body if body.startswith(("import", "from", "class", "@", "def f")) else "def f():\n    return " + body
    (outcome,) = run(Job("x.f", "f", source, prelude, cases=[((), {})], **fields))
    return outcome


@pytest.mark.parametrize(
    "body",
    [
        "torch.ops.aten", "torch._C", "torch.jit.script", "torch.CompilationUnit('')", "torch.load('x')", "torch.compile",
        "torch.utils", "F.torch", "torch.nn.functional.torch", "torch.nn.modules", "torch.overrides", "torch.DisableTorchFunction",
        "torch.set_default_dtype(torch.float64)", "torch.set_num_threads(1)", "torch.from_file('x')",
        "getattr(torch, 'o' + 'ps')", "getattr(torch, '_' + 'C')", "getattr((), '__cla' + 'ss__')", "eval('1')",
        "open('x')", "__import__('os')", "globals()", "vars()", "().__reduce__ and getattr(f, '__glob' + 'als__')",
        "list(map(getattr, [torch], ['ops']))", "setattr(torch.Tensor, 'add', None)", "memoryview(b'')",
        "setattr(torch.ones(1), 'x', 1)", "getattr((i for i in ()), 'gi_fra' + 'me')",
    ],
)
def test_what_is_not_shown_is_not_there(body):
    assert ran(body).error["type"] in {"Hidden", "NameError", "ImportError"}, ran(body)


@pytest.mark.parametrize(
    "line",
    [
        "import os", "import sys", "import importlib", "import numpy.f2py", "from enum import bltns", "import inspect",
        "from torch import optim", "from torch.nn import utils", "import torch.utils._os", "from . import x",
        "from string import Formatter", "from operator import attrgetter", "from typing import get_type_hints",
        "from io import open", "from numpy import load, memmap", "import course.specs", "from course import specs",
        "import llm_internals", "from dataclasses import make_dataclass", "import gradeworker", "from codecs import open",
        "from contextlib import os", "from logging import FileHandler", "import numpy.lib.format",
    ],
)
def test_other_modules_stay_out_of_reach(line):
    outcome = ran(f"{line}\ndef f():\n    return 1")
    assert outcome.error["type"] in {"ImportError", "Hidden"}, outcome


@pytest.mark.parametrize("name", sorted(name for name in namespace.WINDOWS if not name.startswith(("triton", "__"))))
def test_a_window_shows_no_module_but_those_on_the_list(name):
    shown = namespace.window(name)
    for key, value in vars(shown).items():
        if isinstance(value, types.ModuleType):
            assert f"{name}.{key}" in namespace.WINDOWS
            assert type(value) is namespace.Window
        assert key.startswith("__") or namespace.reachable(key) or key in {"mro"}, key


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("math.sqrt(4.0)", 2.0),
        ("F.pad(torch.ones(2), (1, 0)).tolist()", [0.0, 1.0, 1.0]),
        ("torch.nn.functional.relu(-torch.ones(1)).item()", 0.0),
        ("getattr(torch.ones(2), 'shape')[0]", 2),
        ("hasattr(torch.ones(2), 'nope')", False),
        ("[type(3).__name__, isinstance(3, int), max(map(len, ['ab']))]", ["int", True, 2]),
        ("import numpy as np\ndef f():\n    return float(np.linalg.norm(np.ones(4)))", 2.0),
        *[(f"import numpy as np\ndef f():\n    return float(np.ones(4).{method})", value) for method, value in
          {"sum()": 4.0, "mean()": 1.0, "std()": 0.0, "var()": 0.0, "max()": 1.0, "prod()": 1.0, "all()": 1.0,
           "clip(0, 0.5)[0]": 0.5}.items()],
        ("import numpy as np\ndef f():\n    return np.random.default_rng(0).random() < 1", True),
        ("import numpy as np\ndef f():\n    return np.fft.fft([1, 2])[0].real.item()", 3.0),
        ("import torch.nn as nn\ndef f():\n    return list(nn.Linear(2, 3).weight.shape)", [3, 2]),
        ("from torch.nn import functional as G\ndef f():\n    return G.one_hot(torch.tensor(1), 3).tolist()", [0, 1, 0]),
        ("import collections\nfrom collections.abc import Iterable\ndef f():\n    return isinstance([], Iterable)", True),
        ("import io, operator, struct, fractions\ndef f():\n    return operator.add(1, struct.calcsize('<Q'))", 9),
        ("import functools\ndef d(g):\n    @functools.wraps(g)\n    def h():\n        return g() + 1\n    return h\n"
         "@d\ndef f():\n    return 1", 2),
        ("from dataclasses import dataclass\n@dataclass\nclass C:\n    a: int = 3\ndef f():\n    return C().a", 3),
        ("from __future__ import annotations\nfrom dataclasses import dataclass, field\n@dataclass(order=True)\nclass C:\n"
         "    a: int\n    b: list[int] = field(default_factory=list)\ndef f():\n    return C(1) < C(2)", True),
        ("from typing import NamedTuple\nclass P(NamedTuple):\n    a: int\ndef f():\n    return P(1)._replace(a=4).a", 4),
        ("from enum import Enum\nclass E(Enum):\n    A = 1\ndef f():\n    return E['A'].value", 1),
        ("class C:\n    def __init__(self):\n        self._n = 1\n        setattr(self, 'm', 2)\ndef f():\n"
         "    return getattr(C(), '_n') + C().m", 3),
        ("import re, regex, random, itertools, heapq, bisect, copy, string, unicodedata, statistics, logging, time\n"
         "def f():\n    return copy.deepcopy([time.time() > 0])", [True]),
        ("import torch.linalg\ndef f():\n    return torch.linalg.vector_norm(torch.ones(4)).item()", 2.0),
    ],
)
def test_what_honest_answers_write_works(body, value):
    outcome = ran(body)
    assert outcome.error is None, outcome.error
    assert outcome.value == value


def test_given_modules_are_shown_without_what_they_import():
    modules = {"course.given.parts": "import torch\n\n\ndef double(x):\n    return 2 * x\n"}
    prelude = "from course.given import parts\n"
    assert ran("parts.double(4)", prelude, modules=modules).value == 8
    assert ran("import course.given.parts\ndef f():\n    return course.given.parts.double(3)", modules=modules).value == 6
    assert ran("parts.torch", prelude, modules=modules).error["type"] == "Hidden"


def test_what_one_answer_writes_on_a_window_is_not_seen_by_the_next():
    assert ran("import math\nmath.sqrt = None\ndef f():\n    return math.sqrt").value is None
    assert ran("math.sqrt(9.0)").value == 3.0


def test_a_package_imported_by_its_part_is_the_package():
    assert ran("import torch.nn.functional\ndef f():\n    return torch.ones(2).sum().item()", "").value == 2.0


def test_the_windows_are_quickly_made():
    """Every answer looks through them: a second time costs next to nothing, and no module is imported for it."""
    code = ("import torch, sys; from gradeworker import namespace as n; n.window('torch'); before = set(sys.modules); "
            "n.window('torch'); sys.exit(len(set(sys.modules) - before))")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
