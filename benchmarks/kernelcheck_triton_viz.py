"""kernelcheck and triton-viz's sanitizer side by side on the bug zoo of tests/kernelcheck.

    python -m venv V && V/bin/pip install triton-viz==3.0 triton==3.6.0 torch numpy
    python benchmarks/kernelcheck_triton_viz.py --python V/bin/python [--out FILE.json]

triton-viz needs an environment of its own: its release 3.0 imports with Triton 3.6 and no later one. Each kernel runs
in a process of its own there, first as it should be, then with its bug. Without --python only the command is explained:
no figure is written that was not measured.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATHS = [str(ROOT / "src"), str(ROOT / "tests" / "kernelcheck")]

WORK = """
import importlib, io, json, contextlib, sys
import torch, triton, triton_viz
from triton.runtime.interpreter import InterpretedFunction
from wrong.mutants import MUTANTS
from wrong import own
torch.manual_seed(0)
wanted, right = sys.argv[1], sys.argv[2] == "right"

def traced(module):
    for name, value in list(vars(module).items()):
        if isinstance(value, InterpretedFunction) and not name.startswith("_"):
            setattr(module, name, triton_viz.trace("sanitizer")(value))

mutant = next((m for m in MUTANTS if m.name == wanted), None)
if mutant is not None:
    if right:
        module = importlib.import_module("right." + mutant.module)
        case = next(c for c in module.CASES if c.name == mutant.case)
    else:
        module, case = mutant.load()
    traced(module)
    run = lambda: case.run(case.inputs(torch.float32))
else:
    traced(own)
    run = next(w for w in own.WRONG if w.name == wanted).run
text = io.StringIO()
try:
    with contextlib.redirect_stdout(text):
        run()
    result = ["silent", ""]
except SystemExit:
    result = ["reported", ""]
except BaseException as error:
    while error.__cause__ is not None:
        error = error.__cause__
    result = ["stopped", f"{type(error).__name__}: {error}".split(chr(10))[0]]
print(json.dumps(result))
"""

VERSIONS = "import torch, triton, triton_viz; print(torch.__version__, triton.__version__, triton_viz.__version__)"


def ask(python: str, name: str, which: str) -> list[str]:
    """["reported" | "silent" | "stopped" | "died", detail] of one kernel under triton-viz."""
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(PATHS)}
    try:
        done = subprocess.run([python, "-c", WORK, name, which], env=env, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return ["stopped", "no end within 120 s"]
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        tail = done.stderr.strip().splitlines()
        return ["died", f"exit {done.returncode}: {tail[-1] if tail else ''}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="the Python of an environment with triton-viz 3.0 and Triton 3.6")
    parser.add_argument("--out", type=pathlib.Path, help="write what was found, as JSON")
    options = parser.parse_args()
    if options.python is None:
        print(__doc__)
        return 0
    sys.path[:0] = PATHS
    os.environ["TRITON_INTERPRET"] = "1"
    from wrong.mutants import MUTANTS
    from wrong.own import WRONG

    done = subprocess.run([options.python, "-c", VERSIONS], capture_output=True, text=True)
    if done.returncode:
        print(f"{options.python} cannot import triton_viz:\n{done.stderr}", file=sys.stderr)
        return 2
    zoo = [(w.name, w.kind or w.layer) for w in (*MUTANTS, *WRONG)]
    right_of = {m.name: m for m in MUTANTS}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        wrong = dict(zip([n for n, _ in zoo], pool.map(lambda z: ask(options.python, z[0], "wrong"), zoo)))
        first_of_case = {(m.module, m.case): m.name for m in reversed(MUTANTS)}
        right = dict(zip(first_of_case, pool.map(lambda n: ask(options.python, n, "right"), first_of_case.values())))

    table = collections.defaultdict(collections.Counter)
    rows = []
    for name, layer in zoo:
        mutant = right_of.get(name)
        twin = right[mutant.module, mutant.case] if mutant else ["silent", ""]
        verdict = wrong[name][0]
        if twin[0] != "silent":
            verdict = "cannot run the right kernel" if twin[0] != "reported" else "alarm on the right kernel"
        table[layer][verdict] += 1
        rows.append({"kernel": name, "caught by kernelcheck as": layer, "triton-viz": verdict,
                     "detail": twin[1] if twin[0] != "silent" else wrong[name][1]})  # fmt: skip
        print(f"{name:48} {layer:30} {verdict}: {rows[-1]['detail'][:80]}")
    print()
    for layer, found in table.items():
        print(f"{layer:32} {sum(found.values()):3}  " + ", ".join(f"{k} {v}" for k, v in found.items()))
    if options.out:
        names = ("torch", "triton", "triton_viz")
        facts = {"versions": dict(zip(names, done.stdout.split())), "kernels": rows}
        options.out.write_text(json.dumps(facts, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
