"""Flash attention (causal, GQA, window), paged decode, split-K decode with its reduction, int8 KV cache."""

import torch
import triton
import triton.language as tl

from . import Case


@triton.jit
def flash(
    Q,
    K,
    V,
    O,
    LSE,
    q_len,
    kv_len,
    group,
    scale,
    window,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """Q [Hq, q_len, D], K and V [Hkv, kv_len, D]: the last query sees the last key, a window counts itself."""
    tile = tl.program_id(0)
    head = tl.program_id(1)
    m = tile * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    kv = (head // group) * kv_len * D
    q = tl.load(Q + head * q_len * D + m[:, None] * D + d[None, :], mask=m[:, None] < q_len, other=0.0)
    best = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    pos = m + kv_len - q_len
    first = 0
    last = kv_len
    if CAUSAL:
        last = tl.minimum(kv_len, (tile + 1) * BM + kv_len - q_len)
    if WINDOW:
        first = tl.maximum(0, tile * BM + kv_len - q_len - window + 1) // BN * BN
    for start in range(first, last, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(K + kv + n[:, None] * D + d[None, :], mask=n[:, None] < kv_len, other=0.0)
        v = tl.load(V + kv + n[:, None] * D + d[None, :], mask=n[:, None] < kv_len, other=0.0)
        s = tl.dot(q, tl.trans(k)) * (scale * 1.4426950408889634)
        seen = n[None, :] < kv_len
        if CAUSAL:
            seen = seen & (n[None, :] <= pos[:, None])
        if WINDOW:
            seen = seen & (n[None, :] > pos[:, None] - window)
        s = tl.where(seen, s, -float("inf"))
        new = tl.maximum(best, tl.max(s, 1))
        safe = tl.where(new == -float("inf"), 0.0, new)  # a row that has seen nothing yet
        p = tl.exp2(s - safe[:, None])
        fade = tl.exp2(best - safe)
        total = total * fade + tl.sum(p, 1)
        acc = acc * fade[:, None] + tl.dot(p.to(v.dtype), v)
        best = new
    out = acc / total[:, None]
    tl.store(
        O + head * q_len * D + m[:, None] * D + d[None, :],
        out.to(O.dtype.element_ty),
        mask=m[:, None] < q_len,
    )
    tl.store(LSE + head * q_len + m, best / 1.4426950408889634 + tl.log(total), mask=m < q_len)


def run_flash(t, causal=True, window=0, bm=64, bn=64, kernel=None):
    q, k, v = t["q"], t["k"], t["v"]
    (heads, q_len, D), (kv_heads, kv_len, _) = q.shape, k.shape
    out = torch.empty_like(q)
    lse = torch.empty(heads, q_len, device=q.device)
    (kernel or flash)[(triton.cdiv(q_len, bm), heads)](
        q,
        k,
        v,
        out,
        lse,
        q_len,
        kv_len,
        heads // kv_heads,
        D**-0.5,
        window,
        D=D,
        BM=bm,
        BN=bn,
        CAUSAL=causal,
        WINDOW=window > 0,
    )
    return {"out": out, "lse": lse}


def attention_reference(t, causal=True, window=0):
    q, k, v = t["q"], t["k"], t["v"]
    k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
    s = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
    i = torch.arange(q.shape[1], device=q.device)[:, None] + k.shape[1] - q.shape[1]
    j = torch.arange(k.shape[1], device=q.device)[None]
    seen = torch.ones_like(s[0], dtype=torch.bool)
    if causal:
        seen &= j <= i
    if window:
        seen &= j > i - window
    s = s.masked_fill(~seen, -torch.inf)
    return {"out": s.softmax(-1) @ v, "lse": s.logsumexp(-1)}


def qkv(dtype, heads=1, kv_heads=1, q_len=64, kv_len=64, D=32, scale=1.0):
    return {
        "q": (torch.randn(heads, q_len, D) * scale).to(dtype),
        "k": torch.randn(kv_heads, kv_len, D).to(dtype),
        "v": torch.randn(kv_heads, kv_len, D).to(dtype),
    }


def flash_bytes(seq: int, D: int, bm: int, item: int = 4) -> int:
    """HBM bytes of causal flash attention, one head, S a multiple of the tile: Q and O once, the log-sum-exp once, and
    K and V up to the diagonal for each tile of queries."""
    return item * (2 * seq * D + seq) + item * 2 * D * sum(min(seq, (i + 1) * bm) for i in range(seq // bm))


@triton.jit
def paged_decode(
    Q,
    KC,
    VC,
    TABLE,
    LENS,
    O,
    max_blocks,
    scale,
    num_heads,
    num_kv_heads,
    GROUP: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    B: tl.constexpr,
):
    """One new token a request. Q [R, Hq, D]; KC and VC [blocks, B, Hkv, D]; TABLE [R, max_blocks]; tiles of G rows."""
    request = tl.program_id(0)
    kv_head = tl.program_id(1)
    g = tl.arange(0, G)
    d = tl.arange(0, D)
    b = tl.arange(0, B)
    rows = (request * num_heads + kv_head * GROUP + g[:, None]) * D + d[None, :]
    q = tl.load(Q + rows, mask=g[:, None] < GROUP, other=0.0)
    length = tl.load(LENS + request)
    best = tl.full([G], -float("inf"), tl.float32)
    total = tl.zeros([G], tl.float32)
    acc = tl.zeros([G, D], tl.float32)
    for j in range(0, tl.cdiv(length, B)):
        block = tl.load(TABLE + request * max_blocks + j).to(tl.int64)
        seen = j * B + b < length
        where = ((block * B + b[:, None]) * num_kv_heads + kv_head) * D + d[None, :]
        k = tl.load(KC + where, mask=seen[:, None], other=0.0)
        v = tl.load(VC + where, mask=seen[:, None], other=0.0)
        s = tl.where(seen[None, :], tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        new = tl.maximum(best, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        fade = tl.exp(best - new)
        total = total * fade + tl.sum(p, 1)
        acc = acc * fade[:, None] + tl.dot(p.to(v.dtype), v)
        best = new
    tl.store(O + rows, (acc / total[:, None]).to(O.dtype.element_ty), mask=g[:, None] < GROUP)


def paged_inputs(dtype):
    lens = torch.tensor([37, 16, 1], dtype=torch.int32)
    return {
        "q": torch.randn(3, 6, 32).to(dtype),
        "kc": torch.randn(12, 16, 2, 32).to(dtype),
        "vc": torch.randn(12, 16, 2, 32).to(dtype),
        "table": torch.randperm(12)[:9].view(3, 3).int(),
        "lens": lens,
    }


def run_paged(t, kernel=None):
    q, table = t["q"], t["table"]
    out = torch.empty_like(q)
    (kernel or paged_decode)[(q.shape[0], 2)](
        q,
        t["kc"],
        t["vc"],
        table,
        t["lens"],
        out,
        table.shape[1],
        q.shape[2] ** -0.5,
        6,
        2,
        GROUP=3,
        G=16,
        D=32,
        B=16,
    )
    return {"out": out}


def paged_reference(t):
    rows = []
    for r, n in enumerate(t["lens"].tolist()):
        k, v = (t[c][t["table"][r].long()].reshape(-1, 2, 32)[:n].transpose(0, 1) for c in ("kc", "vc"))
        rows.append(attention_reference({"q": t["q"][r][:, None], "k": k, "v": v})["out"][:, 0])
    return {"out": torch.stack(rows)}


@triton.jit
def split_decode(
    Q,
    K,
    V,
    PART,
    BEST,
    TOTAL,
    kv_len,
    chunk,
    scale,
    GROUP: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    BN: tl.constexpr,
):
    """Each program one part of the keys. Q [Hkv, GROUP, D]; PART [Hkv, splits, GROUP, D]; BEST, TOTAL without D."""
    split = tl.program_id(0)
    head = tl.program_id(1)
    g = tl.arange(0, G)
    d = tl.arange(0, D)
    q = tl.load(Q + (head * GROUP + g[:, None]) * D + d[None, :], mask=g[:, None] < GROUP, other=0.0)
    best = tl.full([G], -float("inf"), tl.float32)
    total = tl.zeros([G], tl.float32)
    acc = tl.zeros([G, D], tl.float32)
    end = tl.minimum(kv_len, (split + 1) * chunk)
    for start in range(split * chunk, end, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(K + (head * kv_len + n[:, None]) * D + d[None, :], mask=n[:, None] < end, other=0.0)
        v = tl.load(V + (head * kv_len + n[:, None]) * D + d[None, :], mask=n[:, None] < end, other=0.0)
        s = tl.where(n[None, :] < end, tl.dot(q, tl.trans(k)) * scale, -float("inf"))
        new = tl.maximum(best, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        fade = tl.exp(best - new)
        total = total * fade + tl.sum(p, 1)
        acc = acc * fade[:, None] + tl.dot(p.to(v.dtype), v)
        best = new
    row = (head * tl.num_programs(0) + split) * GROUP + g
    tl.store(PART + row[:, None] * D + d[None, :], acc, mask=g[:, None] < GROUP)
    tl.store(BEST + row, best, mask=g < GROUP)
    tl.store(TOTAL + row, total, mask=g < GROUP)


@triton.jit
def split_reduce(PART, BEST, TOTAL, O, splits, GROUP: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr):
    head = tl.program_id(0)
    g = tl.program_id(1)
    i = tl.arange(0, SPLITS)
    d = tl.arange(0, D)
    row = (head * splits + i) * GROUP + g
    best = tl.load(BEST + row, mask=i < splits, other=-float("inf"))
    total = tl.load(TOTAL + row, mask=i < splits, other=0.0)
    part = tl.load(PART + row[:, None] * D + d[None, :], mask=i[:, None] < splits, other=0.0)
    weight = tl.exp(best - tl.max(best, 0))
    out = tl.sum(part * weight[:, None], 0) / tl.sum(total * weight, 0)
    tl.store(O + (head * GROUP + g) * D + d, out.to(O.dtype.element_ty))


def _run_split(t):
    q, k = t["q"], t["k"]
    kv_heads, kv_len, D = k.shape
    splits, chunk = 3, 48
    part = torch.empty(kv_heads, splits, 3, D, device=q.device)
    best, total = (
        torch.empty(kv_heads, splits, 3, device=q.device),
        torch.empty(kv_heads, splits, 3, device=q.device),
    )
    out = torch.empty_like(q)
    split_decode[(splits, kv_heads)](q, k, t["v"], part, best, total, kv_len, chunk, D**-0.5, GROUP=3, G=16, D=D, BN=16)
    split_reduce[(kv_heads, 3)](part, best, total, out, splits, GROUP=3, D=D, SPLITS=4)
    return {"out": out}


@triton.jit
def int8_kv_decode(Q, K, KS, V, VS, O, kv_len, scale, G: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    """K and V [Hkv, kv_len, D] in int8 with one scale a token, KS and VS [Hkv, kv_len]; Q [Hkv, G, D]."""
    head = tl.program_id(0)
    g = tl.arange(0, G)
    d = tl.arange(0, D)
    q = tl.load(Q + (head * G + g[:, None]) * D + d[None, :])
    best = tl.full([G], -float("inf"), tl.float32)
    total = tl.zeros([G], tl.float32)
    acc = tl.zeros([G, D], tl.float32)
    for start in range(0, kv_len, BN):
        n = start + tl.arange(0, BN)
        seen = n < kv_len
        k = tl.load(K + (head * kv_len + n[:, None]) * D + d[None, :], mask=seen[:, None], other=0)
        v = tl.load(V + (head * kv_len + n[:, None]) * D + d[None, :], mask=seen[:, None], other=0)
        ks = tl.load(KS + head * kv_len + n, mask=seen, other=0.0)
        vs = tl.load(VS + head * kv_len + n, mask=seen, other=0.0)
        s = tl.dot(q, tl.trans(k.to(q.dtype))) * (ks * scale)[None, :]
        s = tl.where(seen[None, :], s, -float("inf"))
        new = tl.maximum(best, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        fade = tl.exp(best - new)
        total = total * fade + tl.sum(p, 1)
        acc = acc * fade[:, None] + tl.dot((p * vs[None, :]).to(q.dtype), v.to(q.dtype))
        best = new
    tl.store(O + (head * G + g[:, None]) * D + d[None, :], (acc / total[:, None]).to(O.dtype.element_ty))


def _int8_kv_inputs(dtype):
    return {
        "q": torch.randn(2, 16, 32).to(dtype),
        "k": torch.randint(-127, 128, (2, 45, 32), dtype=torch.int8),
        "v": torch.randint(-127, 128, (2, 45, 32), dtype=torch.int8),
        "ks": torch.rand(2, 45) / 60,
        "vs": torch.rand(2, 45) / 60,
    }


def _run_int8_kv(t):
    out = torch.empty_like(t["q"])
    int8_kv_decode[(2,)](t["q"], t["k"], t["ks"], t["v"], t["vs"], out, 45, 32**-0.5, G=16, D=32, BN=16)
    return {"out": out}


def _int8_kv_reference(t):
    k, v = t["k"].double() * t["ks"][..., None], t["v"].double() * t["vs"][..., None]
    return {"out": (t["q"] @ k.transpose(1, 2) * 32**-0.5).softmax(-1) @ v}


CASES = [
    Case(
        "flash",
        "attention",
        lambda d: qkv(d, 2, 2, 80, 80, scale=2),
        run_flash,
        attention_reference,
        8,
        dots=True,
    ),
    Case(
        "flash, GQA, offset",
        "attention",
        lambda d: qkv(d, 4, 2, 33, 101),
        lambda t: run_flash(t, bm=16, bn=32),
        attention_reference,
        8,
        dots=True,
    ),
    Case(
        "flash, window",
        "attention",
        lambda d: qkv(d, 2, 1, 70, 90),
        lambda t: run_flash(t, window=20, bm=16, bn=16),
        lambda t: attention_reference(t, window=20),
        8,
        dots=True,
    ),
    Case(
        "flash, not causal",
        "attention",
        lambda d: qkv(d, 1, 1, 33, 50),
        lambda t: run_flash(t, causal=False, bm=32, bn=32),
        lambda t: attention_reference(t, causal=False),
        8,
        dots=True,
    ),
    Case("paged decode", "indirection", paged_inputs, run_paged, paged_reference, 8, dots=True),
    Case(
        "split decode",
        "two kernels",
        lambda d: qkv(d, 2, 2, 3, 130),
        _run_split,
        lambda t: {"out": attention_reference(t, causal=False)["out"]},
        8,
        dots=True,
    ),
    Case("int8 KV decode", "dequantisation", _int8_kv_inputs, _run_int8_kv, _int8_kv_reference, 8, dots=True),
]
