"""From logits to the next token: greedy, or drawn at a temperature."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from . import ops

SMALLEST = torch.finfo(torch.float32).tiny  # temperatures below are rounded to it: they choose the same token


@ops.register("sample", "torch")
def sample(logits: Tensor, temperature: float = 0.0, generators: Sequence[torch.Generator] | None = None) -> Tensor:
    """Choose one token per row. logits: [R, V] -> [R] token ids.

    Temperature 0 takes the largest logit. Above, token i is drawn with probability softmax(logits / T)[i]:
    the first to arrive of V clocks, the i-th ticking at rate p_i, is a token drawn from p. Each row's
    clocks come from its own generator (on the CPU), so that what a request draws does not depend on its
    neighbours.
    """
    if not math.isfinite(temperature):
        raise ValueError(f"temperature must be a finite number, got {temperature}")
    if temperature < 0:
        raise ValueError(f"temperature must be 0 (greedy) or positive, got {temperature}")
    if temperature == 0:
        return logits.argmax(dim=-1)
    if generators is None or len(generators) != len(logits):
        raise ValueError("sampling needs one torch.Generator per row of logits")
    wide = logits.float()
    below_best = wide - wide.amax(dim=-1, keepdim=True)  # divided by a tiny temperature, logits themselves overflow
    probabilities = torch.softmax(below_best / max(temperature, SMALLEST), dim=-1)
    arrivals = [torch.empty(logits.shape[-1]).exponential_(generator=g) for g in generators]
    arrivals = torch.stack(arrivals).to(logits.device).clamp_min(1e-30)  # a clock at exactly 0 would divide by it
    return (probabilities / arrivals).argmax(dim=-1)
