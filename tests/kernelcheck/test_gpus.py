"""Roofline: which limit binds, and the least time."""

import pytest
import torch
from right import attention, elementwise

import kernelcheck
from kernelcheck.gpus import Gpu


def _add():
    x = torch.randn(1000)
    with kernelcheck.checked() as t:
        elementwise.add[(4,)](x, x.clone(), torch.empty(1000), 1000, BLOCK=256)
    return t


@pytest.mark.parametrize("gpu", kernelcheck.GPUS)
def test_an_element_wise_kernel_is_bound_by_memory_on_every_card(gpu):
    t = _add()
    r = kernelcheck.roofline(t, gpu)
    assert (r.bound, r.compute_seconds, r.intensity) == ("memory", 0.0, 0.0)
    assert r.seconds == r.memory_seconds == 12_000 / kernelcheck.GPUS[gpu].bandwidth
    assert r.gpu.source
    assert r.gpu.name in str(r)


def test_flash_attention_turns_from_memory_to_compute():
    inputs = attention.qkv(torch.float16, q_len=256, kv_len=256, D=64)
    with kernelcheck.checked() as t:
        attention.run_flash(inputs)
    slow = Gpu("slow maths", 1e12, {"fp16": 1e12}, "made up")
    fast = Gpu("fast maths", 1e12, {"fp16": 1e15}, "made up")
    assert kernelcheck.roofline(t, slow).bound == "compute"
    assert kernelcheck.roofline(t, slow).seconds == t.flops / 1e12
    assert kernelcheck.roofline(t, fast).bound == "memory"
    assert kernelcheck.roofline(t, fast).ridge == pytest.approx(1000)
    assert kernelcheck.roofline(t, "H100", bytes=t.compulsory).memory_seconds == t.compulsory / 3.35e12
    assert kernelcheck.roofline(t, "RTX 4090").gpu.name == "RTX 4090"


def test_unknown_cards_and_dtypes_are_named():
    t = _add()
    with pytest.raises(
        ValueError, match="no figures for the card 'b9000': choose one of a100, h100, h200, rtx4090, l4"
    ):
        kernelcheck.roofline(t, "b9000")
    t.dots["fp64"] = 5
    with pytest.raises(ValueError, match="has no tensor-core figure for fp64"):
        kernelcheck.roofline(t, "a100")
