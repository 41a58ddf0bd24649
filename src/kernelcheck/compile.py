"""Compile a kernel for a GPU on a machine that has none, and read from the machine code what it would do.

Triton's wheel carries NVIDIA's assembler, so only a driver is missing, and a compiler needs none. The work is done by
a process of its own (_compiler.py), because a process that interprets kernels cannot compile them. Reports are
kept on disk: the same kernel for the same card is compiled once.
"""

import ast
import contextlib
import dataclasses
import hashlib
import inspect
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import types

from . import _triton

ARCHS = (80, 86, 89, 90, 100, 120)
# Shared memory that one block may have, in bytes, by compute capability: CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability". Triton looks at it only when a kernel is launched.
SHARED_LIMIT = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}


class CompileError(RuntimeError):
    """The compiler rejects the kernel. `str()` is its message, with the source line it points at."""


@dataclasses.dataclass(frozen=True)
class CompileReport:
    """What the compiled kernel is made of.

    bytes_per_thread: of the largest tile that it loads; below 16, no load can be 128 bits wide.
    registers: a thread; spills: instructions that move registers to or from local memory; stack and shared: bytes.
    dots: tl.dot's in the kernel; mma: matrix instructions in the PTX by operand dtype, {"fp16": 8}.
    loads and stores: global-memory instructions of the SASS with their width, {"LDG.E.128": 4}.
    ops: all instructions of the SASS. seconds: compile time, when it was compiled.
    """

    kernel: str
    arch: int
    num_warps: int
    num_stages: int
    registers: int
    spills: int
    stack: int
    shared: int
    dots: int
    bytes_per_thread: int
    mma: dict[str, int]
    loads: dict[str, int]
    stores: dict[str, int]
    ops: dict[str, int]
    ptx: str = dataclasses.field(repr=False)
    sass: str = dataclasses.field(repr=False)
    seconds: float
    triton: str
    cached: bool = False

    def __str__(self) -> str:
        mma = ", ".join(f"{n} x {dtype}" for dtype, n in self.mma.items()) or "none"
        loads = ", ".join(f"{n} x {op}" for op, n in self.loads.items()) or "none"
        return (
            f"{self.kernel} for sm_{self.arch}: {self.registers} registers, {self.spills} spills, "
            f"{self.shared:,} B shared, matrix instructions {mma}, loads {loads}"
        )


def compile_report(
    kernel,
    signature: dict[str, str],
    constexprs: dict | None = None,
    arch: int = 90,
    num_warps: int = 4,
    num_stages: int = 3,
    aligned=True,
    cache: bool = True,
    timeout: float = 300,
) -> CompileReport:
    """Compile `kernel` (a @triton.jit function) for compute capability `arch` and report.

    signature: the type of each run-time argument: {"X": "*fp16", "N": "i32", "eps": "fp32"}.
    constexprs: the value of each constexpr: {"BLOCK": 128}.
    aligned: True if every pointer is aligned to 16 bytes, as torch's are; or the names of all arguments, pointers
    and integers, that are divisible by 16. Wide loads of rows need the row length among them.

    Raises CompileError with the compiler's own words if it rejects the kernel, ValueError for bad arguments.
    """
    job = _job(kernel, signature, constexprs or {}, arch, num_warps, num_stages, aligned)
    place = _cache_file(job)
    if cache and (kept := _read(place)) is not None:
        return _result(kept, cached=True)
    answer = _compile(job, timeout)
    if cache:
        _write(place, answer)
    return _result(answer, cached=False)


def launch_signature(kernel, *args, **kwargs) -> tuple[dict[str, str], dict, set[str]]:
    """(signature, constexprs, aligned) of a launch with these arguments, as compile_report takes them.

    An integer or pointer divisible by 16 is aligned, and an integer 1 becomes a constexpr, as in a real launch.
    """
    function = _triton.python_function(kernel)
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    compile_time = _constexpr_names(function)
    signature, constexprs, aligned = {}, {}, set()
    for name, value in bound.arguments.items():
        if name in compile_time or value is None or (type(value) is int and value == 1):
            constexprs[name] = value
            continue
        signature[name] = _triton.type_name(value)
        if hasattr(value, "data_ptr"):
            number = value.data_ptr()
        else:
            number = value if type(value) is int else 1
        if number % 16 == 0:
            aligned.add(name)
    return signature, constexprs, aligned


def assert_gpu_ready(
    report: CompileReport,
    no_spills: bool = True,
    tensor_cores: bool | str | None = None,
    vectorized: bool = True,
    shared_limit: int | None = None,
) -> None:
    """Raise AssertionError, with every reason, unless the compiled kernel is fit for its card.

    tensor_cores: a dtype ("fp16"): the kernel's matrix instructions must all have such operands; True: it must have
    some; False: it need not; unset: it must have some if it has a tl.dot.
    vectorized: at least half of the bytes that its load instructions name are loaded 128 bits at a time, if a tile is
    large enough for that.
    shared_limit: bytes of shared memory allowed; unset, what a block of the report's arch may have.
    """
    problems = []
    if no_spills and report.spills:
        problems.append(
            f"{report.spills} instructions spill registers to memory: use a smaller tile or more warps "
            f"({report.registers} registers a thread)"
        )
    needed = report.dots > 0 if tensor_cores is None else bool(tensor_cores)
    if needed and not report.mma:
        problems.append("no matrix instruction: tl.dot runs on the plain fp32 units, or there is no tl.dot")
    if isinstance(tensor_cores, str) and set(report.mma) - {tensor_cores}:
        found = ", ".join(f"{n} with {dtype}" for dtype, n in report.mma.items())
        problems.append(f"matrix instructions: {found}; all should have {tensor_cores} operands: cast before tl.dot")
    if vectorized and report.loads and report.bytes_per_thread >= 16:
        wide, total = wide_share(report.loads)
        if wide * 2 < total:
            what = ", ".join(f"{n} x {op}" for op, n in report.loads.items())
            problems.append(
                f"only {wide} of {total} bytes are loaded 128 bits at a time ({what}): rows must be contiguous and "
                "their length known to be divisible by 16 (aligned=...)"
            )
    limit = SHARED_LIMIT[report.arch] if shared_limit is None else shared_limit
    if report.shared > limit:
        problems.append(
            f"{report.shared:,} B of shared memory, allowed are {limit:,} B: fewer stages or a smaller tile"
        )
    if problems:
        listed = "".join(f"\n  - {p}" for p in problems)
        raise AssertionError(f"{report.kernel} is not ready for sm_{report.arch}:{listed}")


def wide_share(loads: dict[str, int]) -> tuple[int, int]:
    """(bytes a thread loads with 128-bit instructions, bytes with all), counting each instruction once."""
    wide = total = 0
    for op, count in loads.items():
        size = _width(op) * count
        total += size
        wide += size if _width(op) >= 16 else 0
    return wide, total


def _width(op: str) -> int:
    parts = op.split(".")
    if parts[0].startswith("UTMA"):
        return 16
    for part in parts:
        if part in ("128", "64"):
            return int(part) // 8
        if part in ("U8", "S8"):
            return 1
        if part in ("U16", "S16"):
            return 2
    return 4


# ---- the job -----------------------------------------------------------------------------------------------


def _constexpr_names(function) -> set[str]:
    return {
        name
        for name, p in inspect.signature(function).parameters.items()
        if "constexpr" in (p.annotation if isinstance(p.annotation, str) else getattr(p.annotation, "__name__", ""))
    }


def _job(kernel, signature, constexprs, arch, num_warps, num_stages, aligned) -> dict:
    if arch not in ARCHS:
        older = " Triton makes no tensor-core code for 75 and below." if isinstance(arch, int) and arch < 80 else ""
        raise ValueError(f"arch must be one of {', '.join(map(str, ARCHS))}, got {arch!r}.{older}")
    function = _triton.python_function(kernel)
    names = list(inspect.signature(function).parameters)
    given = {**dict.fromkeys(signature), **dict.fromkeys(constexprs)}
    unknown = [n for n in given if n not in names]
    missing = [n for n in names if n not in given]
    if unknown or missing:
        raise ValueError(
            f"{function.__name__} takes {', '.join(names)}; "
            + (f"missing from signature or constexprs: {', '.join(missing)}" if missing else "")
            + ("; " if missing and unknown else "")
            + (f"not its parameters: {', '.join(unknown)}" if unknown else "")
        )
    if both := sorted(set(signature) & set(constexprs)):
        raise ValueError(f"{', '.join(both)}: in signature and in constexprs; an argument is one or the other")
    if aligned is True:
        aligned = [name for name, kind in signature.items() if kind.startswith("*")]
    elif aligned is False:
        aligned = []
    if strange := sorted(set(aligned) - set(names)):
        raise ValueError(f"aligned names {', '.join(strange)}, which {function.__name__} does not take")
    return {
        "kernel": function.__name__,
        "source": kernel_source(kernel),
        "signature": signature,
        "constexprs": {name: _plain(name, value) for name, value in constexprs.items()},
        "aligned": sorted(n for n in aligned if n in signature),
        "arch": arch,
        "num_warps": num_warps,
        "num_stages": num_stages,
    }


def _plain(name: str, value):
    """A constexpr as JSON can hold it; a triton dtype becomes its name."""
    value = getattr(value, "value", value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if type(value).__name__ == "dtype" and type(value).__module__.startswith("triton"):
        return {"dtype": str(value)}
    raise ValueError(f"constexpr {name} must be a number, a string, None or a triton dtype, got {value!r}")


def kernel_source(kernel) -> str:
    """A module's text that holds the kernel and all that it refers to: device functions, constants, imports.

    So a kernel of a notebook cell compiles as one of a file does, and nothing else of its module is run.
    """
    function = _triton.python_function(kernel)
    parts: dict[str, str] = {}
    _collect(function.__name__, function, parts)
    return "import triton\nimport triton.language as tl\n" + "\n".join(parts.values())


def _collect(name: str, function, parts: dict[str, str]) -> None:
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except OSError:
        raise ValueError(
            f"the source of {function.__name__} cannot be found: define it in a file or a notebook cell"
        ) from None
    tree = ast.parse(source)
    definition = tree.body[0]
    lines = source.splitlines()[definition.lineno - 1 :]
    parts[name] = ""  # a function that calls itself, or two that call each other, are met once
    used = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)}
    for wanted in sorted(used & set(function.__globals__)):
        if wanted not in parts and wanted != name:
            _collect_global(wanted, function.__globals__[wanted], parts)
    parts.pop(name)
    parts[name] = "@triton.jit\n" + "\n".join(lines) + "\n"


def _collect_global(name: str, value, parts: dict[str, str]) -> None:
    home = getattr(value, "__module__", None) or ""
    if isinstance(value, types.ModuleType):
        parts[name] = f"import {value.__name__} as {name}"
    elif _triton.is_jit(value) and not value.fn.__module__.startswith("triton."):
        _collect(name, value.fn, parts)
    elif _triton.is_jit(value):
        parts[name] = f"from {value.fn.__module__} import {value.fn.__name__} as {name}"
    elif type(value).__name__ == "constexpr":
        parts[name] = f"{name} = tl.constexpr({value.value!r})"
    elif type(value).__name__ == "dtype" and type(value).__module__.startswith("triton"):
        parts[name] = f"{name} = tl.dtype({value.name!r})"
    elif home.startswith("triton") and hasattr(value, "__name__"):
        parts[name] = f"from {home} import {value.__name__} as {name}"
    elif isinstance(value, (bool, int, float, str)):
        parts[name] = f"{name} = {value!r}"


# ---- running it --------------------------------------------------------------------------------------------


def _compile(job: dict, timeout: float) -> dict:
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    home = str(pathlib.Path(__file__).resolve().parent.parent)
    env["PYTHONPATH"] = os.pathsep.join(p for p in (home, env.get("PYTHONPATH", "")) if p)
    env.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # as all releases up to 3.9 do; 3.9 warns unless it is said
    with tempfile.TemporaryDirectory(prefix="kernelcheck-") as folder:
        env["TRITON_CACHE_DIR"] = folder
        try:
            done = subprocess.run(
                [sys.executable, "-m", "kernelcheck._compiler", folder],
                input=json.dumps(job),
                capture_output=True,
                text=True,
                env=env,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            raise CompileError(f"{job['kernel']} was not compiled within {timeout:g} s (timeout=...)") from None
        answer = pathlib.Path(folder) / "answer.json"
        if done.returncode or not answer.exists():
            tail = "\n".join(done.stderr.strip().splitlines()[-15:])
            raise CompileError(
                f"the compiler of {job['kernel']} for sm_{job['arch']} stopped with {done.returncode}:\n{tail}"
            )
        return json.loads(answer.read_text())


def _result(answer: dict, cached: bool) -> CompileReport:
    if "error" in answer:
        raise CompileError(answer["error"])
    return CompileReport(**answer, cached=cached)


def _cache_file(job: dict) -> pathlib.Path:
    import triton

    base = os.environ.get("KERNELCHECK_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kernelcheck"
    )
    from . import __version__

    key = hashlib.sha256(json.dumps([job, triton.__version__, __version__], sort_keys=True).encode()).hexdigest()
    return pathlib.Path(base) / f"{job['kernel']}-sm{job['arch']}-{key[:24]}.json"


def _read(place: pathlib.Path) -> dict | None:
    try:
        return json.loads(place.read_text())
    except (OSError, ValueError):
        return None


def _write(place: pathlib.Path, answer: dict) -> None:
    """Keep the answer; a disk that is full or read-only only means that it is compiled again."""
    temporary = place.with_suffix(f".{os.getpid()}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(answer))
        os.replace(temporary, place)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
