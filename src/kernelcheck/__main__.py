"""python -m kernelcheck FILE.py::kernel: run the file's cases, report, compile; one screen.

The file offers `cases()`, which yields one dict a case:

    def cases():
        x = torch.randn(64, 1000)
        yield dict(
            grid=(64,),
            args=dict(X=x, OUT=torch.empty_like(x), n=1000, BLOCK=1024),
            expect=dict(OUT=x.softmax(1)),          # optional: results to compare with
            outputs=["OUT"],                        # optional: must be written throughout
            num_warps=4, num_stages=3,              # optional: for the compiler
        )

Exit code: 0 all is well, 1 a kernel is wrong, 2 the command or the file is.
"""

import argparse
import dataclasses
import importlib.util
import pathlib
import sys

from . import interpreter


class FileError(ValueError):
    """The file, or its cases(), is not as this command needs it."""


@dataclasses.dataclass
class Case:
    """One entry of cases(). args: every parameter of the kernel by name, constexprs too."""

    grid: object
    args: dict
    expect: dict = dataclasses.field(default_factory=dict)
    outputs: list | None = None
    num_warps: int = 4
    num_stages: int = 3


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kernelcheck", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", nargs="?", metavar="FILE.py::kernel", help="the file and the kernel in it")
    parser.add_argument(
        "--gpu", default="h100", help="card for the roofline: a100, h100, h200, rtx4090, l4 (default h100)"
    )
    parser.add_argument("--arch", type=int, nargs="*", default=[80, 90], help="compute capabilities to compile for")
    parser.add_argument("--no-compile", action="store_true", help="only run and report")
    parser.add_argument("--seed", type=int, default=0, help="seed of torch, and of the order of programs")
    parser.add_argument("--selftest", action="store_true", help="check kernelcheck itself on this machine's Triton")
    options = parser.parse_args(argv)
    try:
        interpreter.install()
        if options.selftest:
            from . import selftest

            return 0 if selftest.run() else 1
        if options.target is None:
            parser.error("name a kernel, as FILE.py::kernel, or --selftest")
        return _check(options)
    except (FileError, RuntimeError) as error:
        print(f"kernelcheck: {error}", file=sys.stderr)
        return 2


def load(target: str):
    """(kernel, cases function) of 'FILE.py::kernel'."""
    path, separator, name = target.partition("::")
    file = pathlib.Path(path)
    if not separator or not name:
        raise FileError(f"{target!r}: say which kernel, as {path or 'FILE.py'}::kernel")
    if not file.is_file():
        raise FileError(f"{path}: there is no such file")
    sys.path.insert(0, str(file.parent.resolve()))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise FileError(f"{path} does not import: {type(error).__name__}: {error}") from error
    kernel = getattr(module, name, None)
    if not hasattr(kernel, "run"):
        raise FileError(f"{path} has no kernel {name!r} (a function under @triton.jit)")
    if not callable(getattr(module, "cases", None)):
        raise FileError(f"{path} has no function cases(); see python -m kernelcheck --help")
    return kernel, module.cases


def _cases(make) -> list[Case]:
    cases = []
    for number, entry in enumerate(make()):
        fields = {f.name for f in dataclasses.fields(Case)}
        if not isinstance(entry, dict) or not {"grid", "args"} <= set(entry) <= fields:
            raise FileError(
                f"case {number} of cases() must be a dict with grid, args and at most {', '.join(sorted(fields))}"
            )
        cases.append(Case(**entry))
    if not cases:
        raise FileError("cases() gave no case")
    return cases


def _check(options) -> int:
    import torch

    torch.manual_seed(options.seed)
    kernel, make = load(options.target)
    cases = _cases(make)
    good = True
    for number, case in enumerate(cases):
        shapes = ", ".join(f"{k} {list(v.shape)}" if torch.is_tensor(v) else f"{k}={v}" for k, v in case.args.items())
        print(f"case {number}: {shapes}")
        good &= _run_case(kernel, case, options, table=number == len(cases) - 1)
    if not options.no_compile:
        good &= _compile(kernel, cases[-1], options.arch)
    print("\nall is well" if good else "\nsomething is wrong, see above")
    return 0 if good else 1


def _run_case(kernel, case: Case, options, table: bool) -> bool:
    from .faults import KernelFault
    from .gpus import roofline
    from .trace import checked

    try:
        with checked(shuffle=options.seed, outputs=case.outputs) as t:
            kernel[case.grid](**case.args)
    except KernelFault as fault:
        print(f"  FAULT   {fault}")
        return False
    except Exception as error:
        print(
            "  ERROR   " + "\n          ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
        )
        return False
    good = True
    for name, wanted in case.expect.items():
        good &= _compare(name, case.args[name], wanted)
    if good:
        print("  ok      no access out of bounds, no race, nothing poisoned or left unwritten")
    if table:
        print("\n" + t.report())
        print(f"\n{roofline(t, options.gpu)}\n")
    return good


def _compare(name: str, found, wanted) -> bool:
    """Whether a result is close to what is expected: 16 eps of its dtype, tf32's for fp32, of the largest value."""
    import torch

    if found.shape != wanted.shape:
        print(f"  WRONG   {name} has shape {list(found.shape)}, expected {list(wanted.shape)}")
        return False
    a, b = found.double(), wanted.double()
    eps = 2.0**-10 if found.dtype == torch.float32 else torch.finfo(found.dtype).eps if found.is_floating_point() else 0
    largest = float(b[b.isfinite()].abs().max()) if b.isfinite().any() else 0.0
    off = ~((a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= 16 * eps * max(1.0, largest)))
    if not off.any():
        return True
    where = tuple(int(i) for i in off.nonzero()[0])
    print(
        f"  WRONG   {name}: {int(off.sum())} of {off.numel()} values, the first at {where}: "
        f"{a[where]:.6g}, expected {b[where]:.6g}"
    )
    return False


def _compile(kernel, case: Case, archs: list[int]) -> bool:
    from .compile import CompileError, assert_gpu_ready, compile_report, launch_signature

    signature, constexprs, aligned = launch_signature(kernel, **case.args)
    good = True
    for arch in archs:
        try:
            report = compile_report(
                kernel, signature, constexprs, arch, case.num_warps, case.num_stages, aligned=aligned
            )
            print(report)
            assert_gpu_ready(report)
        except (CompileError, AssertionError) as error:
            print(f"  COMPILE {error}")
            good = False
    return good


if __name__ == "__main__":
    sys.exit(main())
