"""Right kernels of the kinds a language model needs, each with inputs, a launch and an fp64 reference.

`CASES` is what the tests run in the checked interpreter, and what benchmarks/gpu.py runs on a real card as well:
nothing here depends on the mode in which Triton was imported, or on the device of the tensors.
"""

import dataclasses
from collections.abc import Callable

import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclasses.dataclass(frozen=True)
class Case:
    """One kernel at one shape.

    inputs(dtype) -> {name: tensor}, from torch's global generator;  run(inputs) -> {name: output};
    reference(inputs in fp64) -> {name: expected in fp64}, the integer inputs left as they are.
    constant: the error allowed is constant * eps * max(1, largest expected value), eps of the dtype, or that of
    tf32 where `dots` says that the kernel multiplies with tl.dot. exact: outputs must be equal.
    """

    name: str
    kind: str
    inputs: Callable
    run: Callable
    reference: Callable
    constant: float = 4.0
    dots: bool = False
    exact: bool = False
    dtypes: tuple = FLOATS

    def eps(self, dtype: torch.dtype) -> float:
        if self.dots and dtype == torch.float32:
            return 2.0**-10
        return torch.finfo(dtype).eps


def wide(inputs: dict) -> dict:
    """The inputs with every float tensor in fp64."""
    return {k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for k, v in inputs.items()}


def compare(case: Case, dtype: torch.dtype, found: dict, expected: dict) -> list[str]:
    """What differs beyond the case's tolerance: [] if nothing does."""
    problems = []
    for name, want in expected.items():
        have = found[name].double()
        want = want.double()
        if have.shape != want.shape:
            problems.append(f"{name}: shape {tuple(have.shape)}, expected {tuple(want.shape)}")
            continue
        special = ~want.isfinite()
        if (
            not torch.equal(have[special].nan_to_num(), want[special].nan_to_num())
            or not have[~special].isfinite().all()
        ):
            problems.append(f"{name}: NaN or infinity differ")
            continue
        error = float((have - want)[~special].abs().max()) if (~special).any() else 0.0
        largest = float(want[~special].abs().max()) if (~special).any() else 0.0
        allowed = 0.0 if case.exact else case.constant * case.eps(dtype) * max(1.0, largest)
        if error > allowed:
            problems.append(f"{name}: error {error:.3g}, allowed {allowed:.3g}")
    return problems


def all_cases() -> list[Case]:
    from . import attention, elementwise, indexing, matmul, reduction, sampling

    return [case for m in (elementwise, reduction, matmul, indexing, attention, sampling) for case in m.CASES]
