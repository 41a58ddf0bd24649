"""Sorting, top-k and top-p, speculative verification."""

import torch
import triton
import triton.language as tl

from . import Case


@triton.jit
def sort_rows(X, OUT, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(X + row * n + offs, mask=offs < n, other=float("inf")).to(tl.float32)
    tl.store(OUT + row * n + offs, tl.sort(x).to(OUT.dtype.element_ty), mask=offs < n)


def _run_sort(t):
    out = torch.empty_like(t["x"])
    sort_rows[(out.shape[0],)](t["x"], out, out.shape[1], BLOCK=triton.next_power_of_2(out.shape[1]))
    return {"out": out}


@triton.jit
def top_p_probs(LOGITS, OUT, n, top_k, top_p, temperature, BLOCK: tl.constexpr):
    """Probabilities after temperature, top-k and top-p, in the order of the vocabulary (distinct logits)."""
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(LOGITS + row * n + offs, mask=mask, other=-float("inf")).to(tl.float32) / temperature
    ranked = tl.sort(x, descending=True)
    e = tl.where(offs < top_k, tl.exp(ranked - tl.max(x, 0)), 0.0)
    p = e / tl.sum(e, 0)
    before = tl.cumsum(p, 0) - p
    kept = (before < top_p) & (offs < top_k)
    threshold = tl.min(tl.where(kept, ranked, float("inf")), 0)
    e = tl.where(mask & (x >= threshold), tl.exp(x - tl.max(x, 0)), 0.0)
    tl.store(OUT + row * n + offs, e / tl.sum(e, 0), mask=mask)


def _run_top_p(t):
    x = t["logits"]
    out = torch.empty(x.shape, device=x.device)
    top_p_probs[(x.shape[0],)](x, out, x.shape[1], 20, 0.8, 0.7, BLOCK=triton.next_power_of_2(x.shape[1]))
    return {"out": out}


def _top_p_reference(t):
    x = t["logits"] / 0.7
    ranked, order = x.sort(1, descending=True)
    p = ranked[:, :20].softmax(1)
    kept = p.cumsum(1) - p < 0.8
    result = torch.full_like(x, -torch.inf)
    result.scatter_(1, order[:, :20], ranked[:, :20].masked_fill(~kept, -torch.inf))
    return {"out": result.softmax(1)}


@triton.jit
def verify(DRAFT, P, Q, U, OUT, num_draft, vocab, BLOCK: tl.constexpr):
    """Speculative decoding: how many draft tokens are accepted, and the residual distribution after them.

    DRAFT, U [R, k]; P [R, k + 1, V] target, Q [R, k, V] draft probabilities; OUT [R, 1 + V]: count, residual.
    """
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < vocab
    accepted = 0
    alive = 1
    for i in range(0, num_draft):
        token = tl.load(DRAFT + row * num_draft + i)
        p = tl.load(P + (row * (num_draft + 1) + i) * vocab + token)
        q = tl.load(Q + (row * num_draft + i) * vocab + token)
        u = tl.load(U + row * num_draft + i)
        alive = alive * (u * q < p).to(tl.int32)
        accepted += alive
    p = tl.load(P + (row * (num_draft + 1) + accepted) * vocab + offs, mask=mask, other=0.0)
    q = tl.load(Q + (row * num_draft + accepted) * vocab + offs, mask=mask & (accepted < num_draft), other=0.0)
    rest = tl.maximum(p - q, 0.0)
    tl.store(OUT + row * (1 + vocab), accepted.to(tl.float32))
    tl.store(OUT + row * (1 + vocab) + 1 + offs, rest / tl.sum(rest, 0), mask=mask)


def _verify_inputs(dtype):
    return {
        "draft": torch.randint(0, 50, (6, 4)),
        "p": torch.randn(6, 5, 50).mul(2).softmax(-1),
        "q": torch.randn(6, 4, 50).softmax(-1),
        "u": torch.rand(6, 4) * 0.5,
    }


def _run_verify(t):
    out = torch.empty(6, 51, device=t["p"].device)
    verify[(6,)](t["draft"], t["p"], t["q"], t["u"], out, 4, 50, BLOCK=64)
    return {"out": out}


def _verify_reference(t):
    rows = []
    for draft, p, q, u in zip(t["draft"], t["p"], t["q"], t["u"]):
        n = 0
        while n < 4 and u[n] * q[n, draft[n]] < p[n, draft[n]]:
            n += 1
        rest = (p[n] - (q[n] if n < 4 else 0)).clamp_min(0)
        rows.append(torch.cat([torch.tensor([float(n)]).to(rest), rest / rest.sum()]))
    return {"out": torch.stack(rows)}


CASES = [
    Case(
        "sort",
        "sort",
        lambda d: {"x": torch.randn(3, 100).to(d)},
        _run_sort,
        lambda t: {"out": t["x"].sort(1).values},
        exact=True,
    ),
    Case(
        "top-p",
        "sort and scan",
        lambda d: {"logits": torch.stack([torch.randperm(100) for _ in range(3)]).to(d) / 16},
        _run_top_p,
        _top_p_reference,
        16,
    ),
    Case("verify", "control flow", _verify_inputs, _run_verify, _verify_reference, 64, dtypes=(torch.float32,)),
]
