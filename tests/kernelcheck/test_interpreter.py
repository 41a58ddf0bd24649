"""What the repaired interpreter computes, where Triton's own is wrong."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import kernelcheck
from kernelcheck import _triton, interpreter, state

SOFT = [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


@triton.jit
def cast(X, OUT, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(OUT + i, tl.load(X + i).to(OUT.dtype.element_ty))


def awkward_floats() -> torch.Tensor:
    """Random bit patterns of fp32, ties, subnormals of the small formats, NaN and infinity: 4096 values."""
    bits = torch.randint(-(2**31), 2**31, (1024,), dtype=torch.int64).int().view(torch.float32)
    near = torch.randn(2040) * 10.0 ** torch.randint(-8, 5, (2040,))
    ties = (torch.arange(1024) + 0.5) * 2.0**-9
    return torch.cat([bits, near, ties, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 448, 464, 1e-45])])


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


@pytest.mark.parametrize("dtype", SOFT)
def test_casts_round_to_nearest_even(dtype):
    x = awkward_floats()
    out = torch.empty(4096, dtype=dtype)
    cast[(1,)](x, out, N=4096)
    largest = torch.finfo(dtype).max
    wanted = x if dtype == torch.bfloat16 else torch.where(x.isfinite(), x.clamp(-largest, largest), x)
    assert same(out.float(), wanted.to(dtype).float())


@pytest.mark.parametrize("dtype", SOFT)
def test_every_bit_pattern_is_read_as_torch_reads_it(dtype):
    x = torch.arange(256, dtype=torch.uint8).view(dtype) if dtype != torch.bfloat16 else None
    if x is None:
        x = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    out = torch.empty(x.numel())
    cast[(1,)](x, out, N=x.numel())
    assert same(out, x.float())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.float16, torch.float64])
def test_bf16_converts_by_value_not_by_bits(dtype):
    x = torch.tensor([1.0, -2.5, 100.0, 0.0]).to(torch.bfloat16)
    out = torch.empty(4, dtype=dtype)
    cast[(1,)](x, out, N=4)
    assert torch.equal(out, x.to(dtype))
    back = torch.empty(4, dtype=torch.bfloat16)
    cast[(1,)](out, back, N=4)
    assert torch.equal(back, out.to(torch.bfloat16))


@triton.jit
def dot(A, B, C, N: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(C + at, tl.dot(tl.load(A + at), tl.load(B + at), input_precision=PRECISION))


@pytest.mark.parametrize("dtype", [torch.float16, *SOFT])
def test_dot_multiplies_values(dtype):
    a, b = torch.randn(32, 32).to(dtype), torch.randn(32, 32).to(dtype)
    out = torch.empty(32, 32)
    dot[(1,)](a, b, out, N=32, PRECISION=None)
    wanted = a.double() @ b.double()
    assert (out - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_dot_of_fp32_follows_the_kernels_precision():
    a, b, out = torch.randn(64, 64), torch.randn(64, 64), torch.empty(64, 64)
    wanted = a.double() @ b.double()
    errors = {}
    for precision in ("ieee", "tf32", "tf32x3", None):
        with kernelcheck.checked() as t:
            dot[(1,)](a, b, out, N=64, PRECISION=precision)
        errors[precision] = float((out - wanted).abs().max())
        assert list(t.dots) == ["tf32" if precision in ("tf32", None) else "fp32"]
    assert max(errors["ieee"], errors["tf32x3"]) < 1e-4 < 5e-3 < errors["tf32"] == errors[None] < 0.2
    with kernelcheck.checked(tf32=False):
        dot[(1,)](a, b, out, N=64, PRECISION=None)
    assert float((out - wanted).abs().max()) < 1e-4


@triton.jit
def bounded(OUT, n, scale, flag, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for k in range(0, n, 2):
        total += k
    i = tl.arange(0, BLOCK)
    row_is_used = tl.program_id(0) < 1
    value = total * scale.to(tl.float32)
    if flag:
        value = value + 1
    tl.store(OUT + i, value, mask=(i < 4) & row_is_used)


@pytest.mark.parametrize("flag", [False, True])
def test_runtime_bounds_scalar_conditions_floats_and_bools(flag):
    out = torch.zeros(8)
    bounded[(2,)](out, 7, 0.5, flag, BLOCK=8)
    assert out.tolist() == [6.0 + flag] * 4 + [0.0] * 4


@triton.jit
def logic(X, OUT, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    inside = i >= 2 and i < n
    outside = not inside
    tl.store(OUT + i, tl.where(inside or i == 7, 1, 0) + tl.where(outside, 10, 0))


def test_and_or_not_are_element_wise():
    out = torch.zeros(8, dtype=torch.int32)
    logic[(1,)](out, out, 5, BLOCK=8)
    assert out.tolist() == [10, 10, 1, 1, 1, 10, 10, 11]


@triton.jit
def chained(OUT, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(OUT + i, tl.where(2 <= i < n, 1, 0))


def test_chained_comparison_is_right_or_rejected():
    out = torch.zeros(8, dtype=torch.int32)
    if _triton.version() >= (3, 9):
        chained[(1,)](out, 5, BLOCK=8)
        assert out.tolist() == [0, 0, 1, 1, 1, 0, 0, 0]
    else:
        with pytest.raises(SyntaxError, match="chained comparison"):
            chained[(1,)](out, 5, BLOCK=8)


@triton.jit
def vector_condition(OUT, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if i < 3:
        tl.store(OUT + i, i)


def test_if_on_a_vector_is_an_error_that_says_where():
    with pytest.raises(Exception, match="neither true nor false") as caught:
        vector_condition[(2,)](torch.zeros(8, dtype=torch.int32), BLOCK=8)
    assert "in vector_condition, line" in caught.value.__notes__[0]
    assert "if i < 3:" in caught.value.__notes__[0]


@triton.jit
def extremes(X, OUT, INDEX, N: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, N)
    x = tl.load(X + row * N + i)
    high, where = tl.max(x, 0, return_indices=True)
    tl.store(OUT + row * 3, high)
    tl.store(OUT + row * 3 + 1, tl.min(x, 0))
    tl.store(OUT + row * 3 + 2, tl.sum(tl.maximum(x, 0.0), 0))
    tl.store(INDEX + row, where)


def test_max_and_min_drop_nan_even_in_a_row_of_nan():
    nan = torch.nan
    x = torch.tensor([[1.0, nan, 3.0, -2.0], [nan, nan, nan, nan]])
    out, index = torch.empty(2, 3), torch.empty(2, dtype=torch.int32)
    extremes[(2,)](x, out, index, N=4)
    assert out[0].tolist() == [3.0, -2.0, 4.0]
    assert index[0] == 2
    assert out[1, :2].isnan().all()
    assert out[1, 2] == 0.0


@triton.jit
def first_true(a, b):
    return tl.where(a > 0, a, b)


@triton.jit
def reductions(X, OUT, N: tl.constexpr, M: tl.constexpr):
    at = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    x = tl.load(X + at)
    tl.store(OUT + tl.arange(0, N), tl.reduce(x, 1, first_true))


def test_own_combine_functions_keep_the_order():
    x = torch.zeros(4, 16)
    x[0, 5], x[0, 9], x[1, 15], x[2, 0] = 5, 9, 15, 1
    out = torch.empty(4)
    reductions[(1,)](x, out, N=4, M=16)
    assert out.tolist() == [5, 15, 1, 0]


@triton.jit
def sorts(X, S, T, N: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    tl.store(S + i, tl.sort(x, descending=True))
    tl.store(T + tl.arange(0, K), tl.topk(x, K))


def test_sort_and_topk():
    x = torch.randn(1024)
    s, top = torch.empty(1024), torch.empty(8)
    sorts[(1,)](x, s, top, N=1024, K=8)
    assert torch.equal(s, x.sort(descending=True).values)
    assert torch.equal(top, x.topk(8).values)


CONFIGS = [triton.Config({"BLOCK": b}) for b in (16, 32, 64)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def tuned(OUT, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(OUT + i, BLOCK, mask=i < n)


def _block_used(**kwargs) -> int:
    out = torch.zeros(100, dtype=torch.int32)
    with kernelcheck.checked(**kwargs):
        tuned[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](out, 100)
    assert len(tuned.configs) == 3
    return int(out[0]) if (out == out[0]).all() else -1


def test_autotuned_kernels_take_the_first_config_or_the_one_chosen():
    assert _block_used() == 16
    assert _block_used(autotune=2) == 64
    assert _block_used(autotune=lambda configs: configs[1]) == 32
    kernelcheck.install(autotune=1)
    try:
        assert _block_used() == 32
    finally:
        kernelcheck.install(autotune=0)
    with pytest.raises(ValueError, match="tuned has 3 autotune configs, so there is no config 5"):
        _block_used(autotune=5)


@triton.jit
def helper(x):
    return x + 1


def test_a_device_function_is_not_for_the_host():
    with pytest.raises(RuntimeError, match=r"launch it as helper\[grid\]"):
        helper(1)


@triton.jit
def bins(X, OUT, n, B: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(OUT + tl.arange(0, B), tl.histogram(tl.load(X + i), B, mask=i < n))


def test_histogram_drops_what_has_no_bin():
    x = torch.tensor([0, 1, 1, 3, 4, 99, -1, 2, 0, 0, 0, 0, 0, 0, 0, 0], dtype=torch.int32)
    out = torch.zeros(4, dtype=torch.int32)
    bins[(1,)](x, out, 8, B=4)
    assert out.tolist() == [1, 2, 1, 1]


def _run(code: str, **env) -> subprocess.CompletedProcess:
    import os

    clean = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env={**clean, **env}, timeout=120
    )


def test_install_in_time_and_too_late():
    done = _run("import kernelcheck; kernelcheck.install(); import triton; from kernelcheck import _triton;"
                "kernelcheck.install(); print(_triton.interpreted_at_import())")  # fmt: skip
    assert done.stdout.strip() == "True", done.stderr
    late = _run("import triton, kernelcheck, os\ntry: kernelcheck.install()\nexcept RuntimeError as e: print(e)\n"
                "print(os.environ.get('TRITON_INTERPRET'))")  # fmt: skip
    assert "imported before kernelcheck" in late.stdout
    assert "import kernelcheck; kernelcheck.install()" in late.stdout
    assert late.stdout.strip().endswith("None"), "a failed install leaves the environment as it was"
    fine = _run("import triton, kernelcheck; kernelcheck.install(); print('ok')", TRITON_INTERPRET="1")
    assert fine.stdout.strip() == "ok", fine.stderr


def test_importing_kernelcheck_imports_neither_torch_nor_triton():
    done = _run("import kernelcheck, sys; print({'torch', 'triton', 'numpy'} & set(sys.modules))")
    assert done.stdout.strip() == "set()", done.stderr


def test_uninstall_gives_triton_back_as_it_was():
    module = _triton.interpreter()
    repaired = {path: interpreter._resolve(path) for path, _ in state.REPAIRS}
    kernelcheck.uninstall()
    try:
        assert not kernelcheck.installed()
        assert all("kernelcheck" not in getattr(getattr(o, n, None), "__module__", "") for o, n in repaired.values())
        assert not hasattr(module, "_kernelcheck_and")
    finally:
        kernelcheck.install()
    out = torch.zeros(8, dtype=torch.int32)
    logic[(1,)](out, out, 5, BLOCK=8)
    assert out.tolist() == [10, 10, 1, 1, 1, 10, 10, 11]


def test_numpy_does_not_warn_where_a_gpu_would_not(recwarn):
    out = torch.empty(4, dtype=torch.float16)
    cast[(1,)](torch.tensor([1e30, -1e30, 0.0, 1.0]), out, N=4)
    assert out.tolist() == [np.inf, -np.inf, 0.0, 1.0]
    assert not recwarn.list
