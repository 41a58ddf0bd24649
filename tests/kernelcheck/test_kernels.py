"""Right kernels: right results in every dtype, in any order of programs, and no false alarm."""

import pytest
import torch
from right import all_cases, compare, wide

import kernelcheck

CASES = [(case, dtype) for case in all_cases() for dtype in case.dtypes]


@pytest.mark.parametrize(("case", "dtype"), CASES, ids=lambda v: getattr(v, "name", str(v).split(".")[-1]))
def test_kernel_is_right_and_raises_no_alarm(case, dtype):
    inputs = case.inputs(dtype)
    before = {k: v.clone() for k, v in inputs.items()}
    with kernelcheck.checked(shuffle=1) as t:
        found = case.run(inputs)
    assert compare(case, dtype, found, case.reference(wide(inputs))) == []
    assert t.traffic >= t.compulsory > 0
    for name, value in before.items():
        assert torch.equal(value.view(torch.uint8), inputs[name].view(torch.uint8)), f"{name} was changed"


def test_there_are_kernels_of_many_kinds():
    assert len({case.kind for case in all_cases()}) >= 15
