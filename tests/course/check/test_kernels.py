"""The way of a kernel from the notebook to a verdict: child process, kernelcheck, traffic, gate, report."""

import dataclasses
import importlib.util

import pytest
import torch

from course.check import cells, child, kernel_report, report, trial
from course.check.kernels import tl, triton
from course.judging import feedback, judge
from course.specs import exercise
from course.specs.exercise import Draw

SOFTMAX = """@triton.jit
def row_softmax(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(OUT + row * n + i, e / tl.sum(e, axis=0), mask=i < n)
"""
LOAD = 'tl.load(X + row * stride + i, mask=i < n, other=-float("inf"))'
BODY = SOFTMAX.splitlines(True)[2]

WRONG = {  # what is changed, and words that the feedback must hold
    "out of bounds": ((LOAD, "tl.load(X + row * stride + i)"), ["out-of-bounds load", "active lanes outside"]),
    "poison": ((', other=-float("inf")', ""), ["poison stored", "has no other=", "masked lanes hold anything"]),
    "race": (("OUT + row * n + i", "OUT + i"), ["data race: write/write", "program"]),
    "unwritten": ((", mask=i < n)\n", ", mask=i < n - 1)\n"), ["unwritten output", "were written by no program"]),
    "traffic": (("    e = ", f"    x = {LOAD}.to(tl.float32)\n    e = "),
                ["the values are right", "1.50 x what is needed"]),
    "named": (("tl.exp(x - tl.max(x, axis=0))", "tl.exp(x)"), ["looks like", "exp overflows beyond 88"]),
    "import": ((BODY, BODY + "    import os\n"), ["the answer was not run", "may not import os"]),
    "torch inside": (("tl.exp", "torch.exp"), ["torch is not known inside a kernel"]),
    "plain function": (("@triton.jit\n", ""), ["put @triton.jit above it"]),
    "launches itself": ((BODY, BODY), ["a kernel's cell holds kernels only; the launch is given"]),
    "denied": (("e / tl.sum(e, axis=0)", "tl.softmax(x)"), ["softmax does the work this exercise asks you to write"]),
    "not written": ((BODY, "    # YOUR CODE HERE\n    raise NotImplementedError()\n"), ["is not written yet"]),
    "no store": ((SOFTMAX.splitlines(True)[-1], "    e = e + 1\n"), ["the kernel stored nothing"]),
    "arange of a runtime value": (("tl.arange(0, BLOCK)", "tl.arange(0, n)"),
                                  ["ValueError at line 4 of your cell", "must be of type tl.constexpr"]),
    "arange of a program's part": (("tl.arange(0, BLOCK)", "tl.arange(row * BLOCK, (row + 1) * BLOCK)"),
                                   ["write tl.arange(0, BLOCK) and add", "must be of type tl.constexpr"]),
    "arange no power of two": (("tl.arange(0, BLOCK)", "tl.arange(0, 100)"),
                               ["switch off those that are too many with a mask", "must be a power of 2"]),
    "arange backwards": (("tl.arange(0, BLOCK)", "tl.arange(64, 0)"), ["counts upwards", "must be greater"]),
    "pointer read by index": ((LOAD, "X[row * stride + i]"), ["tl.load(X + offsets", "'int' object is not iterable"]),
    "tile read by a pair": ((LOAD, "X[row, i]"), ["tl.load(X + offsets", "unsupported tensor index"]),
    "written by index": (("tl.store(OUT + row * n + i, e / tl.sum(e, axis=0), mask=i < n)", "OUT[i] = e"),
                         ["tl.store(OUT + offsets, value", "does not support item assignment"]),
    "Python's max": (("tl.max(x, axis=0)", "max(x)"), ["use tl.max", "'int' object is not iterable"]),
    "if on a vector": (("    e = ", "    if x > 0:\n        x = x - 1\n    e = "),
                       ["TypeError at line 6 of your cell", "tl.where(condition, this, that)", "as a whole"]),
    "load without a pointer": ((LOAD, "tl.load(row * stride + i)"),
                               ["add the offsets to a pointer, tl.load(X + offsets)", "Unsupported ptr type"]),
    "store without a pointer": (("OUT + row * n + i, ", "i, "),
                                ["tl.store takes addresses first", "Unsupported ptr type"]),
    "load without lanes": ((LOAD, "tl.load(X, mask=i < n)"), ["add the lanes to it, X + i", "cannot be block type"]),
    "one address": ((LOAD, "tl.load(X)"), ["was a single address loaded", "out of bounds for shape []"]),
    "type as in torch": ((".to(tl.float32)", ".float()"), ["x.to(tl.float32)", "has no attribute 'float'"]),
    "type in quotes": ((".to(tl.float32)", ".to('float32')"), ["without quotes", "'str' object"]),
    "method as in torch": (("tl.max(x, axis=0)", "x.amax()"), ["not a torch tensor", "has no attribute 'amax'"]),
    "missing .to": (("tl.exp(x - tl.max(x, axis=0))", "tl.exp(i)"), ["x.to(tl.float32)", "Expected dtype"]),
    "dot of two types": (("    e = ", "    x += tl.dot(x[None, :].to(tl.float16), x[:, None])\n    e = "),
                         ["a.to(b.dtype)", "must be same dtype"]),
    "a float as offset": (("X + row * stride", "X + row / 1 * stride"), ["divide with //", "invalid operands"]),
    "two pointers": ((LOAD, "tl.load(X + OUT + i)"), ["whole numbers as offsets", "cannot add pointers"]),
    "two lengths": (("    e = ", "    x = x + tl.arange(0, 4)\n    e = "), ["different lengths meet", "incompatible"]),
    "shape of a runtime value": (("    e = ", "    x += tl.zeros([n], tl.float32)\n    e = "),
                                 ["a tl.constexpr parameter such as BLOCK", "Shape element 0"]),
    "len": (("    e = ", "    x = x + len(x)\n    e = "), ["given it as a parameter", "has no len()"]),
    "a name tl lacks": (("tl.program_id", "tl.programid"), ["is tl.program_id", "has no attribute 'programid'"]),
    "renamed": (("def row_softmax", "def my_softmax"), ["the cell must define row_softmax"]),
}


def verdict_on(source, seconds=30.0):
    return child.practice(dataclasses.replace(exercise("triton_primer.row_softmax"), seconds=seconds), source)


@pytest.fixture(autouse=True)
def nothing_remembered():
    cells._sources.clear()
    yield
    cells._sources.clear()


def test_a_right_kernel_passes():
    verdict = verdict_on(SOFTMAX)
    assert feedback.text(verdict) == "triton_primer.row_softmax: all checks pass"


@pytest.mark.parametrize("kind", WRONG)
def test_each_fault_is_told_in_words(kind):
    (old, new), words = WRONG[kind]
    source = SOFTMAX.replace(old, new, 1)
    if kind == "launches itself":
        source += "row_softmax[(1,)](0, 0, 0, 0, BLOCK=1)\n"
    assert source != SOFTMAX
    verdict = verdict_on(source)
    text = feedback.text(verdict)
    assert not verdict.passed
    assert [word for word in words if word not in text] == [], text


def test_an_endless_loop_is_stopped_and_the_next_check_works():
    endless = SOFTMAX.replace(BODY, BODY + "    while row >= 0:\n        row = row + 0\n")
    verdict = verdict_on(endless, seconds=3.0)
    assert verdict.kind == "timeout"
    assert "is there a loop that does not end?" in feedback.text(verdict)
    assert verdict_on(SOFTMAX).passed


def test_a_kernel_that_kills_its_process_does_not_kill_ours():
    growth = "    data = (0.0,) * 1000\n    for _ in range(60):\n        data = data + data\n"
    verdict = verdict_on(SOFTMAX.replace(BODY, BODY + growth))
    assert verdict.kind in {"memory", "killed", "error"}, verdict.kind
    assert any(word in feedback.text(verdict) for word in ("memory", "Memory", "ended before it was done"))
    assert verdict_on(SOFTMAX).passed


def test_two_faults_of_one_kind_are_told_apart_by_their_lanes():
    item = exercise("triton_primer.masked_add")
    sources = {miss.name: miss.source for miss in item.near_misses}
    for name in ("no lane is masked", "the mask lets one lane too many through"):
        assert child.practice(item, sources[name]).mistake.name == name


def test_the_report_counts_and_bounds_and_is_plain_about_it(capsys):
    cells.remember("triton_primer.row_softmax", SOFTMAX)
    kernel_report("triton_primer.row_softmax", card="a100")
    text = capsys.readouterr().out
    for words in ("programs of row_softmax", "by this exercise; traffic is 1.00x that", "A100 SXM 80 GB: at least",
                  "Not a measurement", "what the words mean", "  sector ", "  coalesced ", "  bound by "):
        assert words in text, text
    assert "registers" not in text, "what is not in the report is not explained"
    assert max(map(len, text.partition("what the words mean")[2].splitlines())) <= 110


def test_the_report_compiles_on_request():
    text = report.report(exercise("triton_primer.row_softmax"), SOFTMAX, gpu=True)
    for words in ("row_softmax for sm_80", "row_softmax for sm_90", "registers, 0 spills", "  spills ", "  LDG "):
        assert words in text, text


def test_the_report_on_a_wrong_kernel_or_none(capsys):
    kernel_report("triton_primer.row_softmax")
    assert "run its answer cell first" in capsys.readouterr().out
    cells.remember("triton_primer.row_softmax", SOFTMAX.replace("tl.exp(x - tl.max(x, axis=0))", "tl.exp(x)"))
    kernel_report("triton_primer.row_softmax")
    assert "does not pass its check yet" in capsys.readouterr().out
    with pytest.raises(ValueError, match="has no kernel"):
        report.report(exercise("transformer_block.attention"), "")
    with pytest.raises(ValueError, match="choose one of a100"):
        report.report(exercise("triton_primer.row_softmax"), SOFTMAX, card="voodoo2")


def test_without_triton_the_way_on_is_told(monkeypatch, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "triton" else found(name))
    with pytest.raises(RuntimeError, match="Linux container or on Colab"):
        verdict_on(SOFTMAX)
    cells.remember("triton_primer.row_softmax", SOFTMAX)
    kernel_report("triton_primer.row_softmax")
    assert "Linux container or on Colab" in capsys.readouterr().out
    assert "Colab" in trial.run(exercise("transformer_block.rope_kernel"), SOFTMAX, "Hello")


def test_a_notebook_launches_kernels_itself():
    """What the import cell gives is interpreted, and computes on tensors of the learner's own."""

    @triton.jit
    def double(X, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(X + i, 2 * tl.load(X + i, mask=i < n, other=0.0), mask=i < n)

    x = torch.arange(5.0)
    double[(1,)](x, 5, BLOCK=8)
    assert x.tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("name", ["rms_norm", "rope", "swiglu"])
def test_bounds_are_what_the_solution_moves(name):
    """The bound is exact for a kernel that touches everything once: half a bound would let no kernel pass."""
    item = exercise(f"transformer_block.{name}_kernel")
    source = item.alternates[0].source
    memory = judge.Memory(item, item.cases(Draw("bounds")))
    seen = []
    judge_run = child._child().run(item.job(source, memory.cases), 60)
    for case, outcome in zip(memory.cases, judge_run.outcomes):
        seen.append(outcome.measured["traffic"] / item.bytes_bound(*case.args))
    assert seen == [1.0] * len(memory.cases)


@pytest.mark.parametrize("above", ["", "# answer: triton_primer.row_softmax\n", "\n\n# mine\n\n"])
def test_a_mistake_has_its_name_in_whatever_line_it_stands(above):
    verdict = verdict_on(above + SOFTMAX.replace(', other=-float("inf")', "", 1))
    assert verdict.mistake, feedback.text(verdict)
    assert verdict.mistake.name == "masked lanes hold anything"
