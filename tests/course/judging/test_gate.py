import importlib
import subprocess
import sys
import types

import pytest

from course.judging import gate

DENIED = ("softmax", "rms_norm", "scaled_dot_product_attention")


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ndef f(x):\n    return torch.softmax(x, -1)",
        "def f(x):\n    return x.softmax(-1)",
        "def f(x):\n    return F.softmax(x, -1)",
        "from torch.nn.functional import softmax as s\ndef f(x):\n    return s(x, -1)",
        "def f(x):\n    return getattr(torch, 'softmax')(x, -1)",
        "def f(x):\n    return getattr(torch, 'soft' + 'max')(x, -1)",
        "def f(x):\n    return torch.ops.aten._softmax(x, -1, False)",
        "def f(x):\n    return torch._softmax(x, -1, False)",
        "import torch.nn.functional as G\nf = G.scaled_dot_product_attention",
        "from torch.nn.functional import *\ndef f(x):\n    return softmax(x, -1)",
        "f = torch.nn.Softmax(-1)",
        "def f(x):\n    return list(map(getattr, [torch], ['softmax']))[0](x, -1)",
    ],
)
def test_denied_calls_are_seen(source):
    assert gate.inspect(source, DENIED)


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import subprocess as s",
        "from course.specs import exercise",
        "from llm_internals import ops",
        "import torch.utils.cpp_extension",
        "from torch import load",
        "x = torch.load('f')",
        "x = open('f')",
        "eval('1')",
        "().__class__.__bases__",
        "x.__globals__",
        "__builtins__",
        "get_ipython()",
        "from . import x",
        "setattr(x, name, 1)",
        "import operator",
        "g = getattr",
        "torch.utils._os",
        "collections.abc.sys.modules",
        "np.ctypeslib.ctypes",
        "import numpy.ctypeslib as c",
        "from torch.testing._internal.common_utils import os",
        "x.data_ptr()",
    ],
)
def test_what_no_answer_needs_is_refused(source):
    (first, *_) = gate.inspect(source)
    assert first.kind == "policy"


@pytest.mark.parametrize(
    "source",
    [
        "import math\nimport torch\n\ndef f(x):\n    return torch.exp(x - x.amax(-1, keepdim=True))",
        "from collections import Counter\nclass C:\n    def __init__(self):\n        self.n = 0\n"
        "    def __len__(self):\n        return self.n",
        "def my_softmax(x):\n    return x",
        "def softmax(x):\n    return x\ndef f(x):\n    return softmax(x)",
        "def f(x, softmax):\n    return softmax(x)",
        "def f(x):\n    return getattr(x, 'shape')",
        "from course.given.kv_cache import TinyLlama",
        "def f(x):\n    x[...] = 0\n    return x.view(-1)[:, None]",
        "def f(s):\n    'softmax in a docstring is no call'\n    return s.encode()",
    ],
)
def test_honest_answers_pass(source):
    assert gate.inspect(source, DENIED, ("kv_cache",)) == []


def test_findings_name_their_line():
    assert gate.inspect("x = 1\n\nimport os\n")[0].line == 3


@pytest.mark.parametrize("source", ["def f(:\n  pass", "(" * 500, "x = '\0'", "%%bash\nls", "!ls"])
def test_what_is_not_python_is_said_to_be_so(source):
    assert gate.inspect(source)[0].kind == "syntax"


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("package", sorted(gate.ALLOWED_IMPORTS - {"__future__", "triton"}))
def test_no_other_module_is_reached_through_an_allowed_one(package):
    """Two steps deep: enum.bltns is builtins, dataclasses.types makes code run, torch.optim leads on to a dozen."""
    for path, module in modules_below(package, 2):
        allowed = module.__name__ in gate.ALLOWED_MODULES | gate.ALLOWED_IMPORTS
        assert bool(gate.inspect(f"import {package}\n{path}.f()")) or allowed, path


def modules_below(path, steps):
    found = []
    for name, thing in sorted(vars(_module(path)).items()):
        if isinstance(thing, types.ModuleType) and not name.startswith("_"):
            found.append((f"{path}.{name}", thing))
    return found if steps == 1 else found + [
        (f"{way}.{name}", inner) for way, thing in found for name, inner in sorted(vars(thing).items())
        if isinstance(inner, types.ModuleType) and not name.startswith("_")
    ]


def _module(name):
    return importlib.import_module(name)


@pytest.mark.parametrize(
    "line",
    ["codecs.open('x')", "from enum import bltns", "from torch import optim", "import numpy.lib.format",
     "import torch.optim as o\no.lr_scheduler", "from dataclasses import types as t\nt.FunctionType",
     "from torch.nn import utils", "numpy.ones(1).dump('x')", "import triton\ntriton.runtime.driver",
     "F = F\nF.torch.optim", "from triton import testing", "import triton.language as tl\ntl.core",
     "import triton.compiler"],
)
def test_files_and_other_modules_stay_out_of_reach(line):
    assert gate.inspect(f"import codecs, numpy\n{line}")


@pytest.mark.parametrize(
    "line",
    ["codecs.getincrementaldecoder('utf-8')", "list(map({}.__getitem__, []))", "from collections.abc import Iterable",
     "from torch.nn import functional as G\nG.pad", "import torch.nn.functional as G\nG.pad", "numpy.linalg.norm",
     "import triton\nimport triton.language as tl\ntriton.cdiv(3, 2)\ntl.load",
     "from triton import language as tl\ntl.sum",
     "types = [1]\ntypes.append(2)", "random = torch.Generator()\nrandom.seed()"],
)
def test_what_honest_answers_write_passes(line):
    assert gate.inspect(f"import codecs, numpy, torch\n{line}") == []


def test_reading_a_kernel_does_not_import_triton():
    """kernelcheck must be there first, or no kernel can be interpreted in this process."""
    kernel = "import triton\nimport triton.language as tl\n@triton.jit\ndef f(X):\n    tl.load(X)"
    code = f"import sys; from course.judging import gate; gate.inspect({kernel!r}, kernel=True); " \
           "sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_who_prints_in_a_kernel_is_told_how_to_see_a_value():
    kernel = "@triton.jit\ndef f(X):\n    print(X)\n"
    assert [item.message for item in gate.inspect(kernel, kernel=True)] == [
        "print is not known inside a kernel: tl.device_print('x', x) shows x"
    ]
