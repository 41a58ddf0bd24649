"""Bytes of eager operations."""

import torch

import kernelcheck


def test_each_operation_reads_its_inputs_and_writes_its_outputs():
    a, b = torch.randn(16, 32), torch.randn(32, 8)
    with kernelcheck.count_ops() as ops:
        c = a @ b
        d = c.relu()
        d += 1
        d.view(-1)[:4].unsqueeze(0)
        torch.empty(1000)
        torch.zeros(10)
    names = [op.name for op in ops.ops]
    assert names == ["mm", "relu", "add_", "empty", "zeros"] or names == [
        "mm",
        "relu",
        "add_",
        "empty",
        "empty",
        "zero_",
    ]
    sizes = [op.bytes for op in ops.ops]
    assert sizes[:4] == [4 * (512 + 256 + 128), 4 * 256, 4 * 256, 0]
    assert ops.largest == (1000,)
    assert ops.bytes == sum(sizes)


def test_an_expanded_tensor_is_read_once_and_views_are_free():
    x = torch.randn(1, 64)
    with kernelcheck.count_ops() as ops:
        y = x.expand(100, 64)
        y.transpose(0, 1)[3]
    assert ops.ops == []
    assert ops.largest == ()
    assert ops.largest_numel == 0
    with kernelcheck.count_ops() as ops:
        y.sum()
    assert ops.bytes == 64 * 4 + 4


def test_out_arguments_and_nested_counting():
    out = torch.empty(8)
    with kernelcheck.count_ops() as outer, kernelcheck.count_ops() as inner:
        torch.add(torch.ones(8), 1, out=out)
    assert [op.name for op in inner.ops] == [op.name for op in outer.ops]
    assert inner.ops[-1].bytes >= 8 * 4
