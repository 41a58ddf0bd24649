"""A self-test for a machine or a release of Triton that nobody has tried: `python -m kernelcheck --selftest`.

First the private names (`_triton.verify`), then small kernels whose results and counts are known. Prints one line
each and says which one failed.
"""

import torch
import triton
import triton.language as tl

from . import _triton, faults
from .faults import KernelFault
from .trace import checked


@triton.jit
def _add(X, Y, OUT, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(OUT + i, tl.load(X + i, mask=mask, other=0.0) + tl.load(Y + i, mask=mask, other=0.0), mask=mask)


@triton.jit
def _overshoot(X, OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(OUT + i, tl.load(X + i + 1))


@triton.jit
def _collide(OUT):
    tl.store(OUT, tl.program_id(0))


@triton.jit
def _no_other(X, OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(OUT, tl.sum(tl.load(X + i, mask=i < 3), 0))


@triton.jit
def _product(A, B, OUT, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(OUT + at, tl.dot(tl.load(A + at), tl.load(B + at)))


@triton.jit
def _sorted(X, OUT, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(OUT + i, tl.sort(tl.load(X + i)))


def private_names() -> None:
    _triton.verify()


def bf16_arithmetic() -> None:
    x, y = (torch.randn(100).to(torch.bfloat16) for _ in range(2))
    with checked() as t:
        out = torch.empty_like(x)
        _add[(2,)](x, y, out, 100, BLOCK=64)
    assert torch.equal(out, x + y), "a sum of bf16 is wrong"
    assert (t.traffic, t.compulsory) == (600, 600), f"counted {t.traffic} B instead of 600"


def bf16_dot() -> None:
    a, b = (torch.randn(32, 32).to(torch.bfloat16) for _ in range(2))
    out = torch.empty(32, 32)
    _product[(1,)](a, b, out, N=32)
    assert torch.allclose(out, a.float() @ b.float(), atol=1e-4), "a product of bf16 tiles is wrong"


def sorting() -> None:
    x, out = torch.randn(256), torch.empty(256)
    _sorted[(1,)](x, out, N=256)
    assert torch.equal(out, x.sort().values), "tl.sort is wrong"


def _expect(kind: str, launch) -> None:
    found = None
    try:
        with checked():
            launch()
    except KernelFault as fault:
        found = fault
    assert found is not None, f"{kind!r} was not noticed"
    assert found.kind == kind, f"expected {kind!r}, got: {found}"


def bounds() -> None:
    _expect(faults.OUT_OF_BOUNDS_LOAD, lambda: _overshoot[(1,)](torch.zeros(16), torch.zeros(16), BLOCK=16))


def races() -> None:
    _expect(faults.RACE_WRITE_WRITE, lambda: _collide[(2,)](torch.zeros(1, dtype=torch.int32)))


def poison() -> None:
    _expect(faults.POISON, lambda: _no_other[(1,)](torch.ones(4), torch.zeros(1), BLOCK=4))


def unwritten() -> None:
    _expect(faults.UNWRITTEN, lambda: _add[(1,)](torch.ones(100), torch.ones(100), torch.empty(100), 100, BLOCK=64))


def compiler() -> None:
    from .compile import assert_gpu_ready, compile_report

    signature = {"A": "*fp16", "B": "*fp16", "OUT": "*fp32"}
    assert_gpu_ready(compile_report(_product, signature, {"N": 64}, cache=False), tensor_cores="fp16")


CHECKS = (private_names, bf16_arithmetic, bf16_dot, sorting, bounds, races, poison, unwritten, compiler)


def run(say=print) -> bool:
    """Run every check; True if all pass."""
    from . import interpreter

    interpreter.uninstall()  # the names are to be those that Triton ships
    torch.manual_seed(0)
    good = True
    say(f"kernelcheck on Triton {triton.__version__}, torch {torch.__version__}")
    for check in CHECKS:
        name = check.__name__.replace("_", " ")
        try:
            check()
            say(f"  ok      {name}")
        except Exception as error:
            good = False
            say(f"  FAILED  {name}: {type(error).__name__}: {error}")
        interpreter.install()
    return good
