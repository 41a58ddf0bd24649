"""What a kernel moves, what that costs at least on a card, and whether it is ready for one: printed, never graded.

The answer runs in a process of its own (``python -m course.check.report``, the job on standard input), under
kernelcheck, on the largest public case of its exercise. Nothing is timed.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys

from course.check import child
from course.judging import judge, kernel_words
from course.specs.exercise import Exercise
from gradeworker.answer import Job, given_modules, load, poisoned_allocations

SECONDS = 300
ARCHS = (80, 90)


def report(item: Exercise, source: str, card: str = "l4", gpu: bool = False) -> str:
    """The report on an answer that passes its check; one line when it does not.

    Raises ValueError for an exercise without a kernel and for a card without figures, RuntimeError without Triton.
    """
    if item.track != "kernel":
        raise ValueError(f"{item.id} has no kernel: kernel_report is for exercises that ask for one")
    if importlib.util.find_spec("triton") is None:
        raise RuntimeError(child.NO_TRITON)
    from kernelcheck.gpus import find

    find(card)
    if not child.practice(item, source).passed:
        return f'{item.id} does not pass its check yet: see check("{item.id}")'
    case = max(judge.public_cases(item.id, item.edition), key=lambda case: item.bound(case) or 0)
    command = [sys.executable, "-m", "course.check.report", card, str(item.bound(case) or 0)] + ["--gpu"] * gpu
    job = item.job(source, [case])
    try:
        done = subprocess.run(command, input=job.to_bytes(), capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"{item.id}: no report within {SECONDS} s"
    if done.returncode:
        last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing was said"])[-1]
        return f"{item.id}: the process that runs the report ended early: {last}"
    made = done.stdout.decode("utf-8", "replace").rstrip()
    return f"{item.id}, {case.label}\n\n{made}\n\n{kernel_words.explained(made)}"


class _Recorder:
    """Stands for the kernel in the launch function and keeps what it is launched with."""

    def __init__(self, kernel):
        self.kernel, self.launched = kernel, []

    def __getitem__(self, grid):
        def launch(*args, **kwargs):
            self.launched.append((args, kwargs))
            return self.kernel[grid](*args, **kwargs)

        return launch


def main(argv: list[str] | None = None) -> int:
    """Run the job on standard input under kernelcheck and print the report."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("card")
    parser.add_argument("bound", type=int)
    parser.add_argument("--gpu", action="store_true")
    options = parser.parse_args(argv)
    import kernelcheck

    kernelcheck.install()
    job = Job.from_bytes(sys.stdin.buffer.read())
    args, kwargs = job.cases[0]
    driver, job.driver = job.driver, ""
    with given_modules(job.modules), poisoned_allocations():
        kernel = _Recorder(load(job))
        drive = _driver(job.prelude, driver)
        with kernelcheck.checked(record=False) as trace:
            drive(kernel, *args, **kwargs)
    print(trace.report())
    if options.bound:
        share = trace.traffic / options.bound
        print(f"allowed     {options.bound:>12,} B   by this exercise; traffic is {share:.2f}x that")
    roofline = kernelcheck.roofline(trace, options.card)
    print(f"\n{roofline}\n  computed from: {roofline.gpu.source}\n  Not a measurement: no card was asked. A launch "
          "alone takes some microseconds,\n  so only much larger tensors come near such a bound.")
    if options.gpu:
        print()
        for arch in ARCHS:
            print(_readiness(kernel, arch))
    return 0


def _driver(prelude: str, source: str):
    space: dict = {"__name__": "__driver__"}
    exec(compile(prelude, "<given>", "exec"), space)
    exec(compile(source, "<driver>", "exec"), space)
    return space["drive"]


def _readiness(kernel: _Recorder, arch: int) -> str:
    """One kernel compiled for one kind of card, in two or three lines."""
    import kernelcheck

    args, kwargs = kernel.launched[-1]
    signature, constexprs, aligned = kernelcheck.launch_signature(kernel.kernel, *args, **kwargs)
    try:
        compiled = kernelcheck.compile_report(kernel.kernel, signature, constexprs, arch, aligned=aligned)
    except kernelcheck.CompileError as error:
        return f"sm_{arch}: the compiler rejects it: {error}"
    try:
        kernelcheck.assert_gpu_ready(compiled)
    except AssertionError as error:
        return f"{compiled}\n  {error}"
    return f"{compiled}\n  ready: nothing spills, loads are as wide as the tile allows"


if __name__ == "__main__":
    sys.exit(main())
