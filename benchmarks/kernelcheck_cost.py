"""What a checked run costs: CPU time over Triton's own interpreter, flash attention S = 512, D = 64; and what a small
kernel costs in a forked process, as a grader runs it: one launch, and the twenty after it.

    python benchmarks/kernelcheck_cost.py [--out FILE.json]

Both run in fresh processes, by turns, in one go; the ratio of the medians is what counts. Triton's own interpreter is
left as it is shipped, so it computes in fp32, where it is right. A fork is measured in CPU seconds of its own.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEQ, DIM, ROUNDS, REPEATS, LIMIT = 512, 64, 3, 5, 1.5

WORK = """
import json, sys, time
import torch
torch.set_num_threads(1)
mode = sys.argv[1]
if mode != "raw":
    import kernelcheck
    kernelcheck.install()
from right import attention
seq, dim, repeats = map(int, sys.argv[2:])
torch.manual_seed(0)
inputs = {name: torch.randn(1, seq, dim) for name in "qkv"}
def once():
    start = time.process_time()
    if mode == "checked":
        with kernelcheck.checked():
            attention.run_flash(inputs)
    else:
        attention.run_flash(inputs)
    return time.process_time() - start
once()
print(json.dumps([once() for _ in range(repeats)]))
"""

FORKED = """
import json, os, sys, time
import torch
torch.set_num_threads(1)
import kernelcheck
kernelcheck.install()
from right import elementwise
x, y, out = torch.randn(1000), torch.randn(1000), torch.empty(1000)
def once(seed):
    start = time.process_time()
    with kernelcheck.checked(shuffle=seed):
        elementwise.add[(4,)](x, y, out, 1000, BLOCK=256)
    return time.process_time() - start
def fork():
    read, write = os.pipe()
    if not os.fork():
        first = once(0)
        os.write(write, json.dumps([first, sum(map(once, range(1, 21)))]).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(read, 1000))
print(json.dumps([fork() for _ in range(int(sys.argv[1]))]))
"""


def run_fresh(work: str, *arguments) -> list:
    """What a program printed last, as JSON, run in a process of its own."""
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    paths = [str(ROOT / "src"), str(ROOT / "tests" / "kernelcheck"), os.environ.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    command = [sys.executable, "-c", work, *map(str, arguments)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(mode: str) -> list[float]:
    """CPU seconds of each repeat, after one that is not counted."""
    return run_fresh(WORK, mode, SEQ, DIM, REPEATS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="write the figures there, as JSON")
    options = parser.parse_args()
    times = {"raw": [], "installed": [], "checked": []}
    for _ in range(ROUNDS):
        for mode, found in times.items():
            found += measure(mode)
    medians = {mode: statistics.median(found) for mode, found in times.items()}
    ratios = {mode: medians[mode] / medians["raw"] for mode in ("installed", "checked")}
    import numpy
    import torch
    import triton

    print(f"flash attention, S = {SEQ}, D = {DIM}, fp32, one head; CPU seconds, median of {ROUNDS * REPEATS}")
    for mode, seconds in medians.items():
        print(f"  {mode:<10} {seconds:.3f}  {seconds / medians['raw']:.2f} x")
    first, next_twenty = (statistics.median(column) for column in zip(*run_fresh(FORKED, REPEATS * ROUNDS)))
    print(f"a masked add of 1000 numbers in a forked process: first launch {first * 1000:.1f} ms of CPU, "
          f"the next twenty {next_twenty * 1000:.1f} ms")  # fmt: skip
    if options.out:
        facts = {
            "what": f"CPU time over Triton's own interpreter, flash attention, S={SEQ}, D={DIM}, fp32",
            "ratios": {mode: round(ratio, 3) for mode, ratio in ratios.items()},
            "limit": LIMIT,
            "forked": {"first launch, ms of CPU": round(first * 1000, 1),
                       "next twenty launches, ms of CPU": round(next_twenty * 1000, 1)},
            "runs": ROUNDS * REPEATS,
            "python": platform.python_version(),
            "versions": {m.__name__: m.__version__ for m in (torch, triton, numpy)},
        }
        options.out.write_text(json.dumps(facts, indent=2) + "\n")
    good = ratios["checked"] <= LIMIT
    print(f"checked / raw = {ratios['checked']:.2f}, at most {LIMIT}: {'ok' if good else 'TOO SLOW'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
