"""Figures of the Triton primer, all from kernels that ran under kernelcheck. Needs Triton, as the page does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from course.book.display import Display
from course.book.figures import bar_rows, diagram
from course.book.svg import SERIES, Scene
from course.book.traces import Choice, lab
from kernelcheck import checked, count_ops

ORDER = 3  # seed of the order in which programs run
N = 1000


# --- one kernel, several masks: each is a kernel of its own, and each has run ---------------------------------


@triton.jit
def add_masked(X, Y, OUT, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(OUT + i, tl.load(X + i, mask=inside) + tl.load(Y + i, mask=inside), mask=inside)


@triton.jit
def add_unmasked(X, Y, OUT, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(OUT + i, tl.load(X + i) + tl.load(Y + i))


@triton.jit
def add_one_more(X, Y, OUT, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i <= n
    tl.store(OUT + i, tl.load(X + i, mask=inside) + tl.load(Y + i, mask=inside), mask=inside)


@triton.jit
def add_one_less(X, Y, OUT, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n - 1
    tl.store(OUT + i, tl.load(X + i, mask=inside) + tl.load(Y + i, mask=inside), mask=inside)


MASKS = {"i < n": add_masked, "no mask": add_unmasked, "i <= n": add_one_more, "i < n − 1": add_one_less}
BLOCKS = (128, 256, 512)


@dataclass(frozen=True)
class Access:
    """One load or store of one program: elements `first` to `last` of a tensor, `beyond` of them outside."""

    tensor: str
    program: int
    first: int
    last: int
    beyond: int


@dataclass(frozen=True)
class Recorded:
    """A run of an add over `N` elements: its accesses in order, elements nobody wrote, whether the sum is right."""

    grid: int
    accesses: list[Access]
    unwritten: int
    right: bool


def record(kernel, block: int) -> Recorded:
    """Run an add in blocks, programs in a shuffled order, and keep every access."""
    grid = -(-N // block)
    x, y, out = torch.randn(N), torch.randn(N), torch.full((N,), torch.nan)
    with checked(bounds="log", shuffle=ORDER) as run:
        kernel[(grid,)](x, y, out, N, BLOCK=block)
    found = []
    for tensor, touched in run.access_map().items():
        for step in np.unique(touched.step):
            here = touched.step == step
            program = int(touched.program_ids[touched.program[here][0]][0])
            faults = [f for f in run.faults if f.tensor == tensor and f.program_id[0] == program]
            elements = touched.element[here]
            beyond = len(faults[0].offsets) if faults else 0
            found.append((step, Access(tensor, program, int(elements.min()), int(elements.max()), beyond)))
    accesses = [access for _, access in sorted(found, key=lambda pair: pair[0])]
    unwritten = int(out.isnan().sum())
    return Recorded(grid, accesses, unwritten, bool(torch.equal(out, x + y)))


def _add_scene(mask: str, block: int, run: Recorded, step: int, width: float) -> Scene:
    left = 46
    unit = (width - left) / 1024
    scene = Scene(width, 226)
    line = f"tl.load(X + i{'' if mask == 'no mask' else f', mask={mask}'})"
    scene.text("code", 0, 14, f"BLOCK = {block}   {line}", size=13 if width > 500 else 12, mono=True, fill="muted")
    for row, tensor in enumerate(("X", "Y", "OUT")):
        top = 34 + row * 50
        scene.text(f"name-{tensor}", 0, top + 22, tensor, size=14, mono=True)
        scene.rect(f"frame-{tensor}", left, top, N * unit, 34, fill="surface", stroke="muted", stroke_width=1)
    for at, access in enumerate(run.accesses[:step]):
        top = 34 + ("X", "Y", "OUT").index(access.tensor) * 50
        tint, now = SERIES[access.program % len(SERIES)], at == step - 1
        x, wide = left + access.first * unit, (access.last - access.first + 1) * unit
        scene.rect(f"a-{at}", x, top, wide, 34, fill=tint, fill_opacity=0.55 if now else 0.28,
                   stroke="ink" if now else "none", stroke_width=1.5, radius=0, layer=1)  # fmt: skip
        scene.text(f"p-{at}", x + wide / 2, top + 22, str(access.program), size=14, anchor="middle", layer=3)
        if access.beyond:
            past = max(2.5, access.beyond * unit)
            scene.rect(f"b-{at}", left + N * unit, top, past, 34, fill="red", radius=0, layer=2)
    for mark, anchor in ((0, "start"), (512, "middle"), (N, "end")):
        scene.text(f"mark-{mark}", left + mark * unit, 198, f"{mark:,}", size=12, anchor=anchor, fill="muted")
    return scene


def _add_says(mask: str, block: int, run: Recorded, step: int) -> str:
    if step == 0:
        return f"{run.grid} programs of {block} lanes, {mask}: three tensors of {N:,} elements, nothing touched yet."
    access = run.accesses[step - 1]
    verb = "stores" if access.tensor == "OUT" else "loads"
    text = f"Access {step}: program {access.program} {verb} {access.tensor}[{access.first} to {access.last}]"
    if access.beyond:
        end = access.last + access.beyond
        lanes = f"{access.beyond} lanes run" if access.beyond > 1 else "one lane runs"
        where = f"elements {access.last + 1} to {end}" if access.beyond > 1 else f"element {end}"
        text += f", and {lanes} off the end, to {where}"
    if step < len(run.accesses):
        return f"{text}."
    outside = sum(a.beyond for a in run.accesses)
    if outside:
        verdict = f"{outside} accesses lay outside the tensors: kernelcheck stops at the first"
    elif run.unwritten:
        verdict = f"{run.unwritten} element{'s were' if run.unwritten > 1 else ' was'} never written: unwritten output"
    else:
        verdict = "the sum is right, and nothing lay outside"
    return f"{text}. Done: {verdict}."


def missing_mask(caption: str) -> Display:
    """fig-missing-mask: choose a mask and a block; the recorded run of that kernel, access by access."""
    runs = {(mask, block): record(kernel, block) for mask, kernel in MASKS.items() for block in BLOCKS}
    for (mask, block), run in runs.items():
        outside = sum(access.beyond for access in run.accesses)
        assert (outside > 0) == (mask in ("no mask", "i <= n")), (mask, block)
        assert (run.unwritten > 0) == (mask == "i < n − 1"), (mask, block)
        assert run.right == (mask != "i < n − 1"), (mask, block)
    assert sum(a.beyond for a in runs["no mask", 256].accesses if a.tensor == "X") == 24

    def steps(width):
        return lambda mask, block: [_add_scene(mask, block, runs[mask, block], step, width)
                                    for step in range(len(runs[mask, block].accesses) + 1)]  # fmt: skip

    return lab(
        [Choice("mask", list(MASKS)), Choice("BLOCK", list(BLOCKS), start=1)],
        steps(700),
        narrow=steps(336),
        labels=lambda mask, block: [
            _add_says(mask, block, runs[mask, block], step) for step in range(len(runs[mask, block].accesses) + 1)
        ],
        alt="Programs load X and Y and store OUT, each on its own block; with a wrong mask the last one runs off the "
        "end, or leaves an element unwritten",
        name="fig-missing-mask",
        caption=caption,
        guess=("lanes", "lanes", "You said {} lanes, with blocks of 256."),
    )


# --- rows, tiles, bytes ---------------------------------------------------------------------------------------


@triton.jit
def row_mean_n(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    values = tl.load(X + row * n + i, mask=i < n, other=0.0)  # the mistake that the figure shows
    tl.store(OUT + row, tl.sum(values.to(tl.float32), axis=0) / n)


def touched_by(kernel, rows: torch.Tensor, block: int) -> tuple[np.ndarray, int]:
    """Which program loaded each place of the memory below `rows`, as [rows, stride], -1 for none; and the faults."""
    stride, count = rows.stride(0), len(rows)
    who = np.full(count * stride, -1)
    with checked(bounds="log") as run:
        kernel[(count,)](rows, torch.empty(count), stride, rows.shape[1], BLOCK=block)
    touched = run.access_map("X")
    who[touched.element] = touched.program_ids[touched.program][:, 0]
    for fault in run.faults:
        who[fault.offsets] = fault.program_id[0]
    return who.reshape(count, stride), len(run.faults)


def _cells(
    scene: Scene, key: str, x: float, y: float, who: np.ndarray, side: float, tensor_columns: int | None = None
) -> Scene:
    """A matrix of cells in the colours of their programs; outside the tensor a cell has a dashed frame."""
    for (r, c), program in np.ndenumerate(who):
        outside = tensor_columns is not None and c >= tensor_columns
        wrong = outside and program >= 0
        frame = {"stroke": "red", "stroke_width": 2} if wrong else {"stroke": "grid", "stroke_width": 1}
        scene.rect(f"{key}-{r}-{c}", x + c * side, y + r * side, side - 2, side - 2, radius=2, **frame,
                   fill="surface" if program < 0 else SERIES[program % 5], fill_opacity=None if program < 0 else 0.75,
                   dash="2 2" if outside else None)  # fmt: skip
    return scene


def strides(right: Callable, rows: torch.Tensor, block: int, caption: str) -> Display:
    """fig-strides: what each program of a row mean reads, with the stride and with the length in its place."""
    panels = {"row * stride": touched_by(right, rows, block), "row * n": touched_by(row_mean_n, rows, block)}
    assert panels["row * stride"][1] == 0 < panels["row * n"][1]
    memory = rows.stride(0)

    def draw(width, columns, side):
        pitch = 28 + len(rows) * side + 16
        scene = Scene(width, pitch * (2 // columns))
        for at, (title, (who, faults)) in enumerate(panels.items()):
            px, py = (at % columns) * (memory * side + 30), (at // columns) * pitch + 28
            scene.text(f"t-{at}", px, py - 10, f"{title}: {faults} faults", size=14, mono=True)
            _cells(scene, f"m{at}", px, py, who, side, rows.shape[1])
        return scene

    return diagram(
        draw(700, 2, 20),
        narrow=draw(336, 1, 20),
        alt="With the stride each program reads the elements of its row; with n the programs read on without a gap",
        name="fig-strides",
        caption=caption,
    )


@triton.jit
def transpose(X, OUT, rows, cols, stride, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    tile = tl.load(X + r[:, None] * stride + c[None, :], mask=inside)
    tl.store(OUT + c[None, :] * rows + r[:, None], tile, mask=inside)


def tiles(caption: str) -> Display:
    """fig-tiles: which program loads and stores which element of a transpose, 6 rows and 11 columns."""
    matrix = torch.randn(6, 11)
    with checked() as run:
        turned = torch.empty(11, 6)
        transpose[(2, 2)](matrix, turned, 6, 11, 11, BLOCK_R=4, BLOCK_C=8)
    assert torch.equal(turned, matrix.T)
    source, target = run.access_map("X").first("load"), run.access_map("OUT").first("store")

    def draw(width, side, across):
        scene = Scene(width, 30 + 11 * side if across else 30 + 6 * side + 36 + 11 * side)
        scene.text("tx", 0, 16, "X, loaded", size=14)
        _cells(scene, "x", 0, 28, source, side)
        px, py = (11 * side + 60, 28) if across else (0, 28 + 6 * side + 34)
        scene.text("to", px, py - 12, "OUT, stored", size=14)
        return _cells(scene, "o", px, py, target, side)

    return diagram(
        draw(560, 22, True),
        narrow=draw(336, 22, False),
        alt="Four tiles of X in four colours, and the same four tiles transposed in OUT",
        name="fig-tiles",
        caption=caption,
    )


@triton.jit
def softmax_once(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + i, mask=i < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(OUT + row * n + i, e / tl.sum(e, axis=0), mask=i < n)


@triton.jit
def softmax_thrice(X, OUT, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    p = X + row * stride + i
    top = tl.max(tl.load(p, mask=i < n, other=-float("inf")), axis=0)
    total = tl.sum(tl.exp(tl.load(p, mask=i < n, other=-float("inf")) - top), axis=0)
    tl.store(OUT + row * n + i, tl.exp(tl.load(p, mask=i < n, other=-float("inf")) - top) / total, mask=i < n)


def moved(kernel, rows: int = 8, cols: int = 100) -> int:
    """Bytes that a softmax kernel moved; its result must be right."""
    x = torch.randn(rows, cols)
    with checked() as run:
        out = torch.empty(rows, cols)
        kernel[(rows,)](x, out, cols, cols, BLOCK=128)
    assert torch.allclose(out, x.softmax(1), atol=1e-6)
    return run.traffic


def softmax_volumes(rows: int = 8, cols: int = 100) -> dict[str, int]:
    """Bytes moved by three ways to compute a softmax."""
    with count_ops() as eager:
        x = torch.randn(rows, cols)
        start = eager.bytes
        e = (x - x.amax(1, keepdim=True)).exp()
        e / e.sum(1, keepdim=True)
    return {"one load": moved(softmax_once, rows, cols), "three loads": moved(softmax_thrice, rows, cols),
            "five steps of eager PyTorch": eager.bytes - start}  # fmt: skip


def softmax_bytes(volumes: dict[str, int], caption: str) -> Display:
    """fig-softmax-bytes: what those three ways move."""
    once, thrice, eager = volumes.values()
    assert once < thrice < eager
    return bar_rows(
        [(label, value, tint) for (label, value), tint in zip(volumes.items(), ("blue", "orange", "purple"))],
        fmt=lambda value: f"{value:,.0f} bytes",
        alt="Bytes moved by three ways to compute a softmax: "
        + ", ".join(f"{k} {v:,}" for k, v in volumes.items())
        + ".",
        name="fig-softmax-bytes",
        caption=caption,
    )
