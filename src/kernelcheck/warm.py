"""One small kernel, run once at `install`: what Triton and torch look up at their first launch is looked up then.

A process that is forked for each kernel after `install` inherits it, instead of paying it each time.
"""

import torch
import triton
import triton.language as tl

from .trace import checked


@triton.jit
def _twice(x):
    return x + x


@triton.jit
def _kernel(X, OUT, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tile = i[:, None] * 0 + i[None, :]
    x = tl.load(X + i, mask=i < n, other=0.0)
    square = tl.load(X + tile, mask=tile < n, other=0.0)
    total = tl.sum(tl.exp(x - tl.max(x, axis=0)), axis=0)
    product = tl.sum(tl.dot(square, square), axis=1)
    for _ in range(0, n, N):
        product = tl.where(i < n, _twice(product) / total, 0.0).to(tl.float32)
    tl.store(OUT + i, product, mask=i < n)


def run() -> None:
    with checked(shuffle=0) as trace:
        _kernel[(1,)](torch.zeros(16), torch.empty(16), 16, N=16)
    trace.report()
