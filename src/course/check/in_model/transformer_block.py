"""Answers of chapter 03 as the operations of SmolLM2, in torch and in Triton."""

from __future__ import annotations

import contextlib
import dataclasses

import torch

from course.check.in_model import Trial, launched, swap
from llm_internals import model as library
from llm_internals import ops

NAMES = ("attention_norm", "q_proj", "k_proj", "v_proj", "o_proj", "mlp_norm", "gate_proj", "up_proj", "down_proj")
SLOW = "your kernel ran in the interpreter, every access checked: its speed says nothing about a GPU"
LARGE_BLOCK = 512  # of swiglu_kernel: blocks of the exercise's size would be 48 programs a row here


def attention(answer, checkpoint):
    """The answer knows a single head: query head h reads KV head h // group."""

    def by_head(q, k, v, scale, window=None):
        group = q.shape[1] // k.shape[1]
        heads = [answer(q[:, h], k[:, h // group], v[:, h // group]) for h in range(q.shape[1])]
        return torch.stack(heads, dim=1)

    heads = checkpoint.config.num_heads * checkpoint.config.num_layers
    return Trial(swap(attention=by_head), note=f"called once for each of {heads} heads, at every step")


def rms_norm(answer, checkpoint):
    return Trial(swap(rms_norm=answer))


def rope(answer, checkpoint):
    """The model hands cos and sin of every angle; the slowest pair, which never gets round, tells the position."""
    theta, slowest = checkpoint.config.rope_theta, float(checkpoint.model.rope_frequencies[-1])

    def apply_rope(q, k, cos, sin):
        positions = torch.atan2(sin[:, -1].double(), cos[:, -1].double()).div(slowest).round().long()
        return answer(q, positions, theta), answer(k, positions, theta)

    return Trial(swap(apply_rope=apply_rope))


def half_split(answer, checkpoint):
    """Put q_proj and k_proj into GGUF's order, let the answer undo it, run the model on the result."""
    model, config = checkpoint.model, checkpoint.config

    def gguf(weight, heads):
        return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(weight.shape)

    disordered = [
        dataclasses.replace(
            layer, q_proj=gguf(layer.q_proj, config.num_heads), k_proj=gguf(layer.k_proj, config.num_kv_heads)
        )
        for layer in model.layers
    ]

    @contextlib.contextmanager
    def layers(new):
        before = model.layers
        model.layers = new
        try:
            yield
        finally:
            model.layers = before

    def sort(layer):
        q, k = answer(layer.q_proj, layer.k_proj, config.num_heads, config.num_kv_heads)
        return dataclasses.replace(layer, q_proj=q, k_proj=k)

    ids = torch.tensor(checkpoint.tokenizer.encode("The capital of France is"))
    right = model(ids)
    with layers(disordered):
        error = (model(ids) - right).abs().max()
    return Trial(lambda: layers([sort(layer) for layer in disordered]),
                 note=f"without your function, the same weights move a logit by {error:.0f}")


def gqa_attention(answer, checkpoint):
    return Trial(swap(attention=lambda q, k, v, scale, window=None: answer(q, k, v)))


def swiglu(answer, checkpoint):
    return Trial(swap(swiglu=answer))


def block(answer, checkpoint):
    def whole(x, weights, cos, sin, config, attend=None):
        w = {name: getattr(weights, name) for name in NAMES}
        return answer(x, w, cos, sin, config.head_dim, config.rms_norm_eps, attend or ops.attention)

    return Trial(lambda: _replaced("block", whole), note=f"all {checkpoint.config.num_layers} blocks are yours")


def lm_head(answer, checkpoint):
    """The model wants a row of logits for each position: the answer gets every prefix."""

    def every_row(x, norm_weight, head_weight, eps):
        return torch.stack([answer(x[: i + 1], norm_weight, head_weight, eps) for i in range(len(x))])

    return Trial(lambda: _replaced("lm_head", every_row))


def rms_norm_kernel(answer, checkpoint):
    call = launched("transformer_block.rms_norm_kernel", answer)

    def norm(x, weight, eps):
        return call(x.reshape(-1, x.shape[-1]), weight, eps, _power(x.shape[-1])).view(x.shape)

    return Trial(swap(rms_norm=norm), note=SLOW, new_tokens=4)


def rope_kernel(answer, checkpoint):
    call = launched("transformer_block.rope_kernel", answer)

    def apply_rope(q, k, cos, sin):
        return tuple(call(x, cos, sin, _power(x.shape[1]), _power(x.shape[2] // 2)) for x in (q, k))

    return Trial(swap(apply_rope=apply_rope), note=SLOW, new_tokens=4)


def swiglu_kernel(answer, checkpoint):
    call = launched("transformer_block.swiglu_kernel", answer)

    def activate(gate, up):
        flat = [part.reshape(-1, part.shape[-1]) for part in (gate, up)]
        return call(*flat, LARGE_BLOCK).view(gate.shape)

    return Trial(swap(swiglu=activate), note=SLOW, new_tokens=4)


def _power(n: int) -> int:
    """The next power of two, n itself if it is one."""
    return 1 << (n - 1).bit_length()


@contextlib.contextmanager
def _replaced(name: str, function):
    """Put ``function`` in the place of what the model's module calls ``name``."""
    before = getattr(library, name)
    setattr(library, name, function)
    try:
        yield
    finally:
        setattr(library, name, before)
