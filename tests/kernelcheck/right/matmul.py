"""Matmul: plain, autotuned, with tensor descriptors; int8, weight-only int8 and int4, fp8."""

import torch
import triton
import triton.language as tl

from . import FLOATS, Case


@triton.jit
def matmul(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(A + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(B + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(C + m[:, None] * N + n[None, :], acc.to(C.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def _run(kernel, t, **blocks):
    (M, K), N = t["a"].shape, t["b"].shape[1]
    c = torch.empty(M, N, dtype=t["a"].dtype, device=t["a"].device)
    kernel[lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))](t["a"], t["b"], c, M, N, K, **blocks)
    return {"c": c}


_CONFIGS = [triton.Config({"BM": m, "BN": n, "BK": 32}, num_warps=4, num_stages=2) for m, n in ((32, 32), (16, 64))]
autotuned = triton.autotune(configs=_CONFIGS, key=["M", "N", "K"])(matmul)


@triton.jit
def described(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Tiles through tensor descriptors: the edges are padded with zeros and cut off by the hardware."""
    a = tl.make_tensor_descriptor(A, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(B, [K, N], [N, 1], [BK, BN])
    c = tl.make_tensor_descriptor(C, [M, N], [N, 1], [BM, BN])
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(C.dtype.element_ty))


def _run_described(t):
    if t["a"].is_cuda:
        triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    return _run(described, t, BM=32, BN=32, BK=32)


@triton.jit
def int8_matmul(A, B, SA, SB, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Activations and weights in int8, one scale a row and a column: [M, K] x [K, N]."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.int32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(A + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0)
        b = tl.load(B + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0)
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    sa = tl.load(SA + m, mask=m < M, other=0.0)
    sb = tl.load(SB + n, mask=n < N, other=0.0)
    c = acc.to(tl.float32) * sa[:, None] * sb[None, :]
    tl.store(C + m[:, None] * N + n[None, :], c.to(C.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def _int8_inputs(dtype):
    return {
        "a": torch.randint(-128, 128, (33, 70), dtype=torch.int8),
        "b": torch.randint(-128, 128, (70, 50), dtype=torch.int8),
        "sa": torch.rand(33) / 127,
        "sb": torch.rand(50) / 127,
    }


def _run_int8(t):
    (M, K), N = t["a"].shape, t["b"].shape[1]
    c = torch.empty(M, N, device=t["a"].device)
    int8_matmul[(triton.cdiv(M, 32), triton.cdiv(N, 32))](
        t["a"], t["b"], t["sa"], t["sb"], c, M, N, K, BM=32, BN=32, BK=32
    )
    return {"c": c}


@triton.jit
def int4_matmul(A, B, S, Z, C, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """B [K / 2, N] holds weight row 2i in the low half of a byte, 2i + 1 in the high one; S, Z [K / GROUP, N]."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        pair = start // 2 + tl.arange(0, BK // 2)
        a = tl.load(A + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        packed = tl.load(B + pair[:, None] * N + n[None, :], mask=n[None, :] < N, other=0)
        both = tl.join((packed & 0xF).to(tl.float32), (packed >> 4).to(tl.float32))  # [BK / 2, BN, 2]
        q = tl.reshape(tl.permute(both, (0, 2, 1)), (BK, BN))
        group = start // GROUP * N + n
        scale = tl.load(S + group, mask=n < N, other=0.0).to(tl.float32)
        zero = tl.load(Z + group, mask=n < N, other=0.0).to(tl.float32)
        acc = tl.dot(a, ((q - zero[None, :]) * scale[None, :]).to(a.dtype), acc)
    tl.store(C + m[:, None] * N + n[None, :], acc.to(C.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def _int4_inputs(dtype):
    return {
        "a": torch.randn(17, 64).to(dtype),
        "b": torch.randint(0, 256, (32, 40), dtype=torch.uint8),
        "s": (torch.rand(2, 40) / 8).to(dtype),
        "z": torch.randint(0, 16, (2, 40)).to(dtype),
    }


def _run_int4(t):
    (M, K), N = t["a"].shape, t["b"].shape[1]
    c = torch.empty(M, N, device=t["a"].device)
    int4_matmul[(triton.cdiv(M, 16), triton.cdiv(N, 16))](
        t["a"], t["b"], t["s"], t["z"], c, M, N, K, GROUP=32, BM=16, BN=16, BK=32
    )
    return {"c": c}


def _int4_reference(t):
    q = torch.stack([t["b"] & 15, t["b"] >> 4], 1).reshape(64, 40).double()
    w = (q - t["z"].repeat_interleave(32, 0)) * t["s"].repeat_interleave(32, 0)
    return {"c": t["a"] @ w}


def _fp8_inputs(dtype):
    return {
        "a": torch.randn(32, 64).to(torch.float8_e4m3fn),
        "b": torch.randn(64, 32).to(torch.float8_e5m2).to(torch.float8_e4m3fn),
    }


def _run_fp8(t):
    c = torch.empty(32, 32, device=t["a"].device)
    matmul[(1, 1)](t["a"], t["b"], c, 32, 32, 64, BM=32, BN=32, BK=32)
    return {"c": c}


def _ab(dtype, M=45, K=70, N=50):
    return {"a": torch.randn(M, K).to(dtype), "b": torch.randn(K, N).to(dtype)}


def _product(t):
    return {"c": t["a"] @ t["b"]}


CASES = [
    Case("matmul", "matmul", _ab, lambda t: _run(matmul, t, BM=32, BN=32, BK=32), _product, 4, dots=True),
    Case("autotuned matmul", "matmul", _ab, lambda t: _run(autotuned, t), _product, 4, dots=True),
    Case("matmul by descriptor", "matmul", lambda d: _ab(d, 40, 72, 56), _run_described, _product, 4, dots=True),
    Case(
        "int8 matmul",
        "int8",
        _int8_inputs,
        _run_int8,
        lambda t: {"c": (t["a"].double() @ t["b"].double()) * t["sa"][:, None] * t["sb"]},
        4,
        dtypes=(torch.float32,),
    ),
    Case("int4 weights", "unpacking", _int4_inputs, _run_int4, _int4_reference, 8, dots=True, dtypes=FLOATS),
    Case(
        "fp8 matmul",
        "fp8",
        _fp8_inputs,
        _run_fp8,
        lambda t: _product({k: v.double() for k, v in t.items()}),
        8,
        dtypes=(torch.float32,),
    ),
]
