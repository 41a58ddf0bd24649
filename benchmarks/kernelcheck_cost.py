"""What a checked run costs: CPU time over Triton's own interpreter, flash attention S = 512, D = 64.

    python benchmarks/kernelcheck_cost.py [--out FILE.json]

Both run in fresh processes, by turns, in one go; the ratio of the medians is what counts. Triton's own interpreter is
left as it is shipped, so it computes in fp32, where it is right.
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


def measure(mode: str) -> list[float]:
    """CPU seconds of each repeat, after one that is not counted."""
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    paths = [str(ROOT / "src"), str(ROOT / "tests" / "kernelcheck"), os.environ.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    command = [sys.executable, "-c", WORK, mode, str(SEQ), str(DIM), str(REPEATS)]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


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
    if options.out:
        facts = {
            "what": f"CPU time over Triton's own interpreter, flash attention, S={SEQ}, D={DIM}, fp32",
            "ratios": {mode: round(ratio, 3) for mode, ratio in ratios.items()},
            "limit": LIMIT,
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
