"""python -m kernelcheck FILE.py::kernel, and the self-test."""

import textwrap

import pytest

from kernelcheck.__main__ import main

GOOD = """
import torch, triton, triton.language as tl

@triton.jit
def softmax(X, OUT, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * n + i, mask=i < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(OUT + row * n + i, e / tl.sum(e, 0), mask=i < n)

def cases():
    for n in (100, 256):
        x = torch.randn(8, n)
        yield dict(grid=(8,), args=dict(X=x, OUT=torch.empty_like(x), n=n, BLOCK=256), expect=dict(OUT=x.softmax(1)),
                   outputs=["OUT"])
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("KERNELCHECK_CACHE", str(tmp_path_factory.getbasetemp() / "kernelcheck-cache"))


@pytest.fixture
def run(tmp_path, capsys):
    def run(text: str, *options: str, kernel: str = "softmax"):
        file = tmp_path / "mine.py"
        file.write_text(textwrap.dedent(text))
        code = main([f"{file}::{kernel}", *options])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_right_kernel_on_one_screen(run):
    code, out, _ = run(GOOD, "--gpu", "l4", "--arch", "80")
    assert code == 0, out
    assert out.count("ok      no access out of bounds") == 2
    for part in (
        "case 0: X [8, 100]",
        "8 programs of softmax",
        "compulsory",
        "L4: at least",
        "softmax for sm_80:",
        "all is well",
    ):
        assert part in out, out
    assert len(out.splitlines()) <= 40


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("mask=i < n, other=-float", "other=-float", "ERROR"),
        ('mask=i < n, other=-float("inf"))', "mask=i < n)", "FAULT   poison stored in softmax, line 10"),
        ("tl.exp(x - tl.max(x, 0))", "tl.exp(x) + 1", "WRONG   OUT: "),
        ("(8,), args", "(7,), args", "FAULT   unwritten output in softmax: OUT, shape [8, 100]: 100 of 800 elements"),
        ("row * n + i, mask=i < n, other", "row * n + i + 1, mask=i < n, other", "FAULT   out-of-bounds load"),
        ('    e = tl.exp', '    table = {}\n    e = tl.exp', "COMPILE softmax for sm_80:"),
    ],
)  # fmt: skip
def test_a_wrong_kernel_exits_with_1_and_says_why(run, old, new, says):
    assert GOOD.count(old) == 1
    code, out, _ = run(GOOD.replace(old, new), "--arch", "80")
    assert code == 1
    assert says in out, out
    assert "something is wrong" in out


@pytest.mark.parametrize(
    ("text", "kernel", "says"),
    [
        (GOOD, "hardmax", "has no kernel 'hardmax'"),
        (GOOD.replace("def cases", "def examples"), "softmax", "has no function cases()"),
        (GOOD.replace("grid=(8,), ", ""), "softmax", "case 0 of cases() must be a dict with grid, args"),
        ("import nothing_like_this", "softmax", "does not import: ModuleNotFoundError"),
        (GOOD.split("def cases")[0] + "def cases(): return []", "softmax", "cases() gave no case"),
    ],
)
def test_a_file_that_is_not_as_needed_exits_with_2(run, text, kernel, says):
    code, _, err = run(text, "--no-compile", kernel=kernel)
    assert code == 2
    assert says in err


def test_missing_file_and_missing_name(capsys):
    assert main(["nowhere.py::k"]) == 2
    assert "there is no such file" in capsys.readouterr().err
    assert main(["nowhere.py"]) == 2
    assert "say which kernel, as nowhere.py::kernel" in capsys.readouterr().err


def test_selftest(capsys):
    assert main(["--selftest"]) == 0
    out = capsys.readouterr().out
    assert "FAILED" not in out
    assert out.count("  ok  ") == 9
