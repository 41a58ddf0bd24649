"""The kernels on a real card: are its results those of the checked interpreter, and how near is its bandwidth.

    python benchmarks/gpu.py [--out FILE.json]            under four minutes, needs only this tree, torch and triton

Every right kernel of kernelcheck's tests and every kernel of the course runs on the card and, in a process of its own,
in the checked interpreter, on the same inputs: fp32, fp16 and bf16, once more with NaN and infinity among them. What
differs by more than rounding is listed: it is a fault of kernelcheck, or a statement about GPUs to be corrected.
RMSNorm, RoPE and SwiGLU are timed against the bandwidth with which the card copies a large tensor in the same run.

Without a CUDA card nothing is run and nothing is written.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATHS = [str(ROOT / "src"), str(ROOT / "tests" / "kernelcheck")]
sys.path[:0] = PATHS
SECONDS = 200  # no new kernel is begun after that
NO_CARD = "no CUDA card on this machine: nothing was run, nothing was written, and no statement about GPUs was checked"


def course_cases() -> list:
    """The kernels of the library, by their public functions."""
    import torch
    from right import Case

    from llm_internals.kernels import rms_norm, rope, swiglu

    def norm_inputs(dtype):
        return {"x": torch.randn(33, 576).to(dtype), "w": torch.randn(576).to(dtype)}

    def rope_inputs(dtype):
        angle = torch.rand(17, 32) * 6
        q, k = torch.randn(17, 9, 64), torch.randn(17, 3, 64)
        return {n: v.to(dtype) for n, v in {"q": q, "k": k, "cos": angle.cos(), "sin": angle.sin()}.items()}

    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos[:, None] - b * sin[:, None], b * cos[:, None] + a * sin[:, None]], -1)

    def glu_inputs(dtype):
        return {"gate": (torch.randn(19, 1536) * 3).to(dtype), "up": torch.randn(19, 1536).to(dtype)}

    return [
        Case("course: rms_norm", "course", norm_inputs,
             lambda t: {"out": rms_norm.rms_norm(t["x"], t["w"], 1e-5)},
             lambda t: {"out": t["x"] * (t["x"].square().mean(-1, keepdim=True) + 1e-5).rsqrt() * t["w"]}, 4),
        Case("course: apply_rope", "course", rope_inputs,
             lambda t: dict(zip("qk", rope.apply_rope(t["q"], t["k"], t["cos"], t["sin"]))),
             lambda t: {n: rotate(t[n], t["cos"], t["sin"]) for n in "qk"}, 4),
        Case("course: swiglu", "course", glu_inputs,
             lambda t: {"out": swiglu.swiglu(t["gate"], t["up"])},
             lambda t: {"out": torch.nn.functional.silu(t["gate"]) * t["up"]}, 4),
    ]  # fmt: skip


def jobs() -> list[tuple]:
    """(label, case, dtype, special): special inputs hold NaN and infinity."""
    from right import all_cases

    found = []
    for case in (*all_cases(), *course_cases()):
        for dtype in case.dtypes:
            label = f"{case.name}, {str(dtype).removeprefix('torch.')}"
            found.append((label, case, dtype, False))
            found.append((label + ", with NaN and infinity", case, dtype, True))
    return found


def make_inputs(case, dtype, special: bool) -> dict:
    """Inputs on the CPU; special ones have NaN and both infinities in each float tensor of more than 8 elements."""
    import torch

    torch.manual_seed(0)
    inputs = case.inputs(dtype)
    if special:
        for value in inputs.values():
            if value.dtype in (torch.float32, torch.float16, torch.bfloat16) and value.numel() > 8:
                flat = value.view(-1)
                flat[torch.tensor([1, value.numel() // 2, value.numel() - 2])] = torch.tensor(
                    [torch.nan, torch.inf, -torch.inf]
                ).to(value.dtype)
    return inputs


def interpret(folder: pathlib.Path) -> None:
    """The other process: all jobs in the checked interpreter; outputs, or the fault, to folder/checked.pt."""
    import kernelcheck

    kernelcheck.install()
    import torch

    torch.set_num_threads(1)
    results = {}
    for label, case, dtype, special in jobs():
        try:
            with kernelcheck.checked():
                results[label] = case.run(make_inputs(case, dtype, special))
        except Exception as error:
            results[label] = f"{type(error).__name__}: {error}"
    torch.save(results, folder / "checked.pt")


def differences(case, dtype, card: dict, checked: dict) -> list[str]:
    """What the card and the interpreter do not agree on: the interpreter's result stands for the expected one."""
    from right import compare

    problems = []
    for name in card:
        a, b = card[name].cpu().double(), checked[name].double()
        if not ((a.isnan() == b.isnan()) & (a.isinf() == b.isinf())).all():
            which = (a.isnan() != b.isnan()) | (a.isinf() != b.isinf())
            at = tuple(int(i) for i in which.nonzero()[0])
            problems.append(f"{name}: {int(which.sum())} values, card {a[at]} and interpreter {b[at]} at {at}")
    return problems or compare(case, dtype, {n: v.cpu() for n, v in card.items()}, checked)


def compare_all(interpreter: subprocess.Popen, folder: pathlib.Path, started: float) -> dict:
    """Run every job on the card, wait for the interpreter's results, and list what differs."""
    import torch
    from right import compare, wide

    report = {"compared": 0, "differences": {}, "wrong on the card": {}, "card refuses": {}, "left out for time": []}
    cards = {}
    for label, case, dtype, special in jobs():
        if time.monotonic() - started > SECONDS:
            report["left out for time"].append(label)
            continue
        inputs = make_inputs(case, dtype, special)
        try:
            found = case.run({n: v.cuda() for n, v in inputs.items()})
            torch.cuda.synchronize()
        except Exception as error:
            report["card refuses"][label] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        cards[label] = (case, dtype, {n: v.cpu() for n, v in found.items()})
        if not special and (problems := compare(case, dtype, cards[label][2], case.reference(wide(inputs)))):
            report["wrong on the card"][label] = problems
    if interpreter.wait(timeout=max(10.0, SECONDS + 30 - (time.monotonic() - started))):
        raise RuntimeError("the process with the checked interpreter failed, see above")
    checked = torch.load(folder / "checked.pt", weights_only=True)
    for label, (case, dtype, found) in cards.items():
        if isinstance(checked[label], str):
            report["differences"][label] = [f"only the interpreter faults: {checked[label]}"]
        elif problems := differences(case, dtype, found, checked[label]):
            report["differences"][label] = problems
        report["compared"] += 1
    return report


def bandwidth() -> dict:
    """Bytes a second of RMSNorm, RoPE and SwiGLU in bf16, as shares of a copy's in the same run."""
    import torch
    from triton.testing import do_bench

    from llm_internals.kernels import rms_norm, rope, swiglu

    def rate(moved: int, work) -> float:
        return moved / (do_bench(work, warmup=50, rep=200) * 1e-3)

    big = torch.empty(2**29, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(big)
    copy = rate(2 * big.numel(), lambda: target.copy_(big))
    x = torch.randn(16384, 4096, dtype=torch.bfloat16, device="cuda")
    w = torch.randn(4096, dtype=torch.bfloat16, device="cuda")
    q = torch.randn(16384, 32, 128, dtype=torch.bfloat16, device="cuda")
    k = torch.randn(16384, 8, 128, dtype=torch.bfloat16, device="cuda")
    angle = torch.rand(16384, 64, device="cuda", dtype=torch.bfloat16)
    size = x.numel() * 2
    rates = {
        "rms_norm": rate(2 * size + w.numel() * 2, lambda: rms_norm.rms_norm(x, w, 1e-5)),
        "apply_rope": rate(2 * 2 * (q.numel() + k.numel()) + 4 * angle.numel(),
                           lambda: rope.apply_rope(q, k, angle, angle)),
        "swiglu": rate(3 * size, lambda: swiglu.swiglu(x, x)),
    }  # fmt: skip
    return {"copy GB/s": round(copy / 1e9, 1), "share of copy": {n: round(r / copy, 3) for n, r in rates.items()}}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "benchmarks" / "gpu.json", help="where the JSON goes"
    )
    parser.add_argument("--interpret", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.interpret:
        interpret(options.interpret)
        return 0
    import torch

    if not torch.cuda.is_available():
        print(NO_CARD)
        return 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kernelcheck-gpu-") as folder:
        env = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--interpret", folder]
        interpreter = subprocess.Popen(command, env=env)
        os.environ.pop("TRITON_INTERPRET", None)
        try:
            report = compare_all(interpreter, pathlib.Path(folder), started)
        finally:
            interpreter.kill()
    import triton

    report["bandwidth"] = bandwidth()
    report["card"] = torch.cuda.get_device_name()
    report["capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
    report["versions"] = {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda}
    report["seconds"] = round(time.monotonic() - started, 1)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
