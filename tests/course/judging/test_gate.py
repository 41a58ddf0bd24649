"""What is told from an answer's text alone. What it may reach by name: tests/gradeworker/test_namespace.py."""

import subprocess
import sys

import pytest

from course.authoring.build import solution_sources
from course.judging import gate
from course.specs import exercise, exercises


@pytest.mark.parametrize(
    "source",
    [
        "import os", "import subprocess as s", "from course.specs import exercise", "from llm_internals import ops",
        "import torch.utils.cpp_extension", "from torch.utils import cpp_extension", "from . import x",
        "import numpy.f2py.__main__", "import torch.utils.model_dump.__main__", "import numpy.ctypeslib as c",
        "from torch.testing._internal.common_utils import os", "import course.given.kv_cache", "import triton.compiler",
        "from triton import testing as t\nt._x", "from torch.nn.functional import *", "x = open('f')", "eval('1')",
        "().__class__.__bases__", "x.__globals__", "__builtins__", "get_ipython()", "g.gi_frame", "e.tb_frame.f_globals",
        "x.data_ptr()", "x.untyped_storage()", "np.ones(1).ctypes", "torch.allclose = lambda *a: True",
        "torch.Tensor.add = None", "torch._C", "torch.overrides.x.__enter__", "match x:\n    case C(gi_frame=f):\n        pass",
        "class T(torch.Tensor):\n    pass", "class C(metaclass=M):\n    pass",
        "def __getattr__(name):\n    pass",
    ],
)
def test_what_no_answer_needs_is_refused(source):
    (first, *_) = gate.inspect(source)
    assert first.kind == "policy"


@pytest.mark.parametrize(
    "source",
    [
        "import math\nimport torch\n\ndef f(x):\n    return torch.exp(x - x.amax(-1, keepdim=True))",
        "from collections import Counter\nclass C:\n    def __init__(self):\n        self._n = 0\n"
        "    def __len__(self):\n        return self._n",
        "def softmax(x):\n    return x\ndef f(x):\n    return softmax(x)",
        "def f(x):\n    return getattr(x, 'shape')",
        "from course.given.kv_cache import TinyLlama",
        "from course.given import kv_cache",
        "import io, operator, struct, time, logging, fractions, contextlib",
        "import functools\ndef d(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n    return g",
        "from torch.nn import functional as G\nG.pad",
        "P = collections.namedtuple('P', 'a b')\nP(1, 2)._replace(a=2)",
        "def f(x):\n    x[...] = 0\n    return x.view(-1)[:, None]",
        "types = [1]\ntypes.append(2)",
        "x = type(3)",
    ],
)
def test_honest_answers_pass(source):
    assert gate.inspect(source, ("kv_cache",)) == []


def test_findings_name_their_line_and_come_once():
    (only,) = gate.inspect("x = 1\n\nimport os\n")
    assert only.line == 3
    assert len(gate.inspect("x.__a__.__a__ + y.__a__")) == 1


@pytest.mark.parametrize("source", ["def f(:\n  pass", "(" * 500, "x = '\0'", "%%bash\nls", "!ls"])
def test_what_is_not_python_is_said_to_be_so(source):
    assert gate.inspect(source)[0].kind == "syntax"


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("depth", [100, 1_000, 5_000, 90_000])
@pytest.mark.parametrize("around", ["x = {}1", "@({}1)\ndef f(): pass", "def f(x={}1): pass", "raise E({}1)", "f'{{{}1}}'"])
def test_no_depth_ends_the_reader(around, depth, kernel):
    assert isinstance(gate.inspect(around.format("-" * depth), kernel=kernel), list)


@pytest.mark.parametrize("module", ["numpy.f2py", "torch.utils.model_dump", "this", "antigravity", "idlelib.idle"])
def test_nothing_that_an_answer_names_is_imported(module):
    code = (f"import sys; from course.judging import gate; before = set(sys.modules); gate.inspect('import {module}\\n"
            f"from {module} import x\\n{module}.y'); sys.exit(len(set(sys.modules) - before))")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reading_a_kernel_does_not_import_triton():
    """kernelcheck must be there first, or no kernel can be interpreted in this process."""
    kernel = "import triton\nimport triton.language as tl\n@triton.jit\ndef f(X):\n    tl.load(X)"
    code = f"import sys; from course.judging import gate; gate.inspect({kernel!r}, kernel=True); " \
           "sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def kernel(body, head="X, n"):
    return f"@triton.jit\ndef f({head}):\n    {body}\n"


def test_who_prints_in_a_kernel_is_told_how_to_see_a_value():
    assert [item.message for item in gate.inspect(kernel("print(X)"), kernel=True)] == [
        "print is not known inside a kernel: tl.device_print('x', x) shows x"
    ]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (kernel("y = tl.softmax(X)"), "softmax does the work"),
        (kernel("y = X.handle"), "handle has no place in a kernel"),
        (kernel("y = [i for i in range(3)]"), "comprehensions"),
        (kernel("tl = X"), "keeps its meaning"),
        (kernel("pass", "X, n=print(1)"), "defaults and annotations"),
        ("x = 1", "kernels only"),
        (kernel("pass") + "f[(1,)](x, 3)", "goes into another cell"),
        ("def f(X):\n    pass", "put @triton.jit above it"),
        ("@triton.jit\n@other\ndef f(X):\n    pass", "put @triton.jit above it"),
        ("import os", "nothing else"),
        ("import math as tl", "nothing else"),
        ("from math import sqrt", "nothing else"),
    ],
)
def test_a_kernels_cell_holds_kernels_only(source, said):
    assert any(said in item.message for item in gate.inspect(source, kernel=True, denied=("softmax",)))


@pytest.mark.parametrize("head", ["X, BLOCK: tl.constexpr", "X: 'a pointer', N", "X, BLOCK: tl.constexpr = 16"])
def test_annotations_of_a_kernel_may_be_constants(head):
    assert gate.inspect(kernel("tl.store(X, 1.0)", head), kernel=True) == []


def test_constexpr_as_a_text_is_said_since_the_interpreter_does_not_know_it():
    (finding,) = gate.inspect(kernel("tl.store(X, 1.0)", "X, BLOCK: 'tl.constexpr'"), kernel=True)
    assert "without quotation marks" in finding.message


@pytest.mark.parametrize("item", exercises(), ids=lambda item: item.id)
def test_solutions_and_alternates_pass(item):
    for source in [solution_sources()[item.id], *(other.source for other in item.alternates)]:
        assert gate.inspect(source, item.given, item.track == "kernel", item.denied) == []


def test_the_list_of_exercises_is_not_empty():
    assert exercise("kv_cache.KVCache") in exercises()
