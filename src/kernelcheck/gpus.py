"""Roofline: which limit binds, and the least time a card could take for what a run moved and multiplied.

Figures are peaks of the makers' data sheets, dense (no sparsity), tensor cores with fp32 accumulation where the
sheet tells. A kernel reaches them in part only; the time is a lower bound, not a forecast.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Gpu:
    """bandwidth: bytes a second; flops: operations a second by operand dtype of tl.dot; source: the data sheet."""

    name: str
    bandwidth: float
    flops: dict[str, float]
    source: str


def _peaks(fp32: float, tf32: float, fp16: float, int8: float, fp8: float | None = None) -> dict[str, float]:
    """TFLOP/s (int8: TOP/s) to operations a second, by the names of triton's dtypes."""
    table = {"fp32": fp32, "tf32": tf32, "fp16": fp16, "bf16": fp16, "int8": int8, "uint8": int8}
    if fp8 is not None:
        table |= dict.fromkeys(("fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16"), fp8)
    return {name: value * 1e12 for name, value in table.items()}


GPUS = {
    "a100": Gpu(
        "A100 SXM 80 GB", 2.039e12, _peaks(19.5, 156, 312, 624), "NVIDIA A100 Tensor Core GPU data sheet, June 2021"
    ),
    "h100": Gpu(
        "H100 SXM",
        3.35e12,
        _peaks(67, 494.5, 989, 1979, 1979),
        "NVIDIA H100 Tensor Core GPU data sheet (half of 'with sparsity')",
    ),
    "h200": Gpu(
        "H200 SXM",
        4.8e12,
        _peaks(67, 494.5, 989, 1979, 1979),
        "NVIDIA H200 Tensor Core GPU data sheet (half of 'with sparsity')",
    ),
    "rtx4090": Gpu(
        "RTX 4090",
        1.008e12,
        _peaks(82.6, 82.6, 165.2, 660.6, 330.3),
        "NVIDIA Ada GPU architecture white paper, appendix A",
    ),
    "l4": Gpu(
        "L4",
        300e9,
        _peaks(30.3, 60, 121, 242.5, 242.5),
        "NVIDIA L4 Tensor Core GPU data sheet (half of 'with sparsity')",
    ),
}


@dataclasses.dataclass(frozen=True)
class Roofline:
    """bound: "memory" or "compute"; seconds: the larger of the two times. intensity and ridge: operations a byte of
    this run, and those at which both limits meet on this card for the run's dtypes."""

    gpu: Gpu
    bound: str
    seconds: float
    memory_seconds: float
    compute_seconds: float
    intensity: float
    ridge: float

    def __str__(self) -> str:
        return (
            f"{self.gpu.name}: at least {self.seconds * 1e6:.3g} us, bound by {self.bound} (memory "
            f"{self.memory_seconds * 1e6:.3g} us, tl.dot {self.compute_seconds * 1e6:.3g} us; "
            f"{self.intensity:.1f} operations per byte)"
        )


def find(gpu: str | Gpu) -> Gpu:
    """The card called `gpu`, or `gpu` itself if it is one."""
    if isinstance(gpu, Gpu):
        return gpu
    key = gpu.lower().replace(" ", "").replace("-", "")
    if key not in GPUS:
        raise ValueError(f"no figures for the card {gpu!r}: choose one of {', '.join(GPUS)}, or pass a kernelcheck.Gpu")
    return GPUS[key]


def roofline(run, gpu: str | Gpu = "h100", bytes: int | None = None) -> Roofline:
    """The roofline (Williams, Waterman and Patterson, 2009) of a checked run on a card.

    bytes: what reaches memory; unset, the run's `traffic`, as if no cache kept anything (the upper bound), pass
    `run.compulsory` for the other end. Raises ValueError if the card has no figure for a dtype of the run's dots.
    """
    card = find(gpu)
    missing = [dtype for dtype in run.dots if dtype not in card.flops]
    if missing:
        have = ", ".join(card.flops)
        raise ValueError(f"{card.name} has no tensor-core figure for {', '.join(missing)}; it has {have}")
    moved = run.traffic if bytes is None else bytes
    memory = moved / card.bandwidth
    compute = sum(count / card.flops[dtype] for dtype, count in run.dots.items())
    intensity = run.flops / moved if moved else float("inf")
    ridge = run.flops / compute / card.bandwidth if compute else card.flops["fp32"] / card.bandwidth
    bound = "compute" if compute > memory else "memory"
    return Roofline(card, bound, max(memory, compute), memory, compute, intensity, ridge)
