"""SwiGLU in Triton."""

from __future__ import annotations

import torch

from course.specs.exercise import KERNEL_PRELUDE, Case, Draw, Exercise, Tolerance
from course.specs.kernels import HALF, padded, size
from course.specs.transformer_block.shared import PAGE, PRIMER, widened


def launch(kernel, gate, up, block):
    import triton

    rows, n = gate.shape
    y = torch.empty(gate.shape, dtype=gate.dtype)
    kernel[(rows, triton.cdiv(n, block))](gate, up, y, gate.stride(0), up.stride(0), n, BLOCK=block)
    return y


def reference(gate, up, block):
    wide = widened(gate)
    return (wide * torch.sigmoid(wide) * widened(up)).to(gate.dtype)


def cases(draw: Draw) -> list[Case]:
    def case(rows, n, label, dtype=torch.float32, tolerance=None, scale=1.0, block=32):
        gate, up = draw.randn(rows, n, dtype=dtype, scale=scale), draw.randn(rows, n, dtype=dtype)
        return Case((gate, up, block), label=label, tolerance=tolerance)

    n = draw.choice([41, 53, 90])
    fused = draw.randn(2, 2 * 45)
    return [
        case(2, n, f"2 rows of {n}"),
        Case((fused[:, :45], fused[:, 45:], 32),
             label="gate and up are the halves of one projection: rows of 45, 90 apart"),
        Case((padded(draw, 2, 37, 40), padded(draw, 2, 37, 50), 32), label="rows of 37; gate's lie 40 apart, up's 50"),
        case(1, 64, "a row of 64: two full blocks"),
        Case((torch.linspace(-110, 110, 23).repeat(2, 1), draw.randn(2, 23), 32), label="gates from -110 to 110"),
        case(1, 33, "fp16", torch.float16, HALF, 3.0),
        case(1, 35, "bf16", torch.bfloat16, HALF, 3.0),
        case(2, 150, "rows of 150, blocks of 64", block=64),
        case(2, 21, "rows of 21, blocks of 8", block=8),
    ]


SWIGLU_KERNEL = Exercise(
    id="transformer_block.swiglu_kernel",
    title="SwiGLU in Triton",
    signature="swiglu_kernel(GATE, UP, Y, gate_stride, up_stride, n, BLOCK: tl.constexpr)",
    reference=reference,
    cases=cases,
    hints=(
        "Masked add on a grid of two axes: axis 0 is the row, axis 1 the block of columns. No reduction at all.",
        "i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK); GATE's rows lie gate_stride apart, UP's up_stride, Y's n. "
        "Compute in fp32; tl.sigmoid survives large gates.",
        "g = tl.load(GATE + row * gate_stride + i, mask=i < n, other=0.0).to(tl.float32); u likewise; "
        "tl.store(Y + row * n + i, g * tl.sigmoid(g) * u, mask=i < n)",
    ),
    section=f"{PAGE}#swiglu",
    points=1,
    track="kernel",
    difficulty=2,
    minutes=15,
    tolerance=Tolerance(c=8.0, K=2),
    prelude=KERNEL_PRELUDE,
    drive=launch,
    argument_names=("gate", "up", "block"),
    bytes_bound=lambda gate, up, block: 3 * size(gate),
    in_model=True,
    seconds=30.0,
)

SWIGLU_KERNEL.near_miss(
    "the gate itself is missing",
    {"gate * tl.sigmoid(gate)": "tl.sigmoid(gate)"},
    says="SiLU(x) is x times sigmoid(x): sigmoid alone only opens and closes.",
)

SWIGLU_KERNEL.near_miss(
    "SiLU is applied to up",
    {"gate * tl.sigmoid(gate) * up": "up * tl.sigmoid(up) * gate"},
    says="The gate goes through SiLU, up stays as it is.",
)

SWIGLU_KERNEL.near_miss(
    "exp of a large gate overflows",
    {"tl.sigmoid(gate)": "(tl.exp(gate) / (1.0 + tl.exp(gate)))"},
    says="exp(g) / (1 + exp(g)) is infinity over infinity beyond 88: use tl.sigmoid, or 1 / (1 + exp(-g)).",
)

SWIGLU_KERNEL.near_miss(
    "no lane is masked",
    {"i < n": "i >= 0"},
    says="The last block of a row reaches into the next row, or past the tensor: mask with i < n.",
    section=f"{PRIMER}#the-missing-mask",
)

SWIGLU_KERNEL.near_miss(
    "it takes rows to lie n apart",
    {"row * gate_stride": "row * n", "row * up_stride": "row * n"},
    says="gate and up may be halves of one projection: their rows lie gate_stride and up_stride apart. Only Y's lie "
    "n apart.",
    section=f"{PRIMER}#strides",
)

SWIGLU_KERNEL.near_miss(
    "every block of a row works on the first",
    {"tl.program_id(1) * BLOCK + tl": "tl"},
    says="Axis 1 of the grid counts the blocks of a row: add tl.program_id(1) * BLOCK.",
    section=f"{PRIMER}#masked-add",
)

SWIGLU_KERNEL.near_miss(
    "it loads the gate twice",
    {"tl.sigmoid(gate)": "tl.sigmoid(tl.load(GATE + row * gate_stride + i, mask=inside, other=0.0).to(tl.float32))"},
    says="Once for the sigmoid and once for the product: one load is enough, keep the value.",
    section=f"{PRIMER}#what-one-byte-costs",
)

SWIGLU_KERNEL.near_miss(
    "the block has a size of its own",
    {"tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)": "tl.program_id(1) * 32 + tl.arange(0, 32)"},
    says="Who launches the kernel chooses the block, and counts the programs of a row by it. With another size some columns "
    "are done by nobody: use BLOCK.",
    section=f"{PRIMER}#masked-add",
)


@SWIGLU_KERNEL.alternate("divided by 1 + exp(-gate), the strides added first")
def swiglu_kernel(GATE, UP, Y, gate_stride, up_stride, n, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    i = block * BLOCK + tl.arange(0, BLOCK)
    GATE += row * gate_stride
    UP += row * up_stride
    inside = i < n
    g = tl.load(GATE + i, mask=inside).to(tl.float32)
    u = tl.load(UP + i, mask=inside).to(tl.float32)
    tl.store(Y + row * n + i, (u * (g / (1.0 + tl.exp(-g)))).to(Y.dtype.element_ty), mask=inside)
