"""Kernels in plain words: what Triton's own errors ask for, and what the words of a kernel report mean."""

from __future__ import annotations

import difflib
import re

# What kernels of this course call; for a name that tl does not have.
TL_NAMES = (
    "abs", "arange", "broadcast_to", "cdiv", "constexpr", "dot", "exp", "exp2", "expand_dims", "float16", "float32",
    "full", "int32", "int64", "load", "log", "log2", "make_block_ptr", "max", "maximum", "min", "minimum",
    "num_programs", "program_id", "reshape", "rsqrt", "sigmoid", "sqrt", "static_range", "store", "sum", "trans",
    "where", "zeros",
)

# Pattern of the message, pattern of the line that raised it, what to do. The first match is taken.
WORDS = (
    (r"`other` cannot be provided without `mask`", "",
     "other= says what a masked lane holds, so it comes with a mask: tl.load(X + offsets, mask=mask, other=0.0)."),
    (r"arange's arguments must be of type tl.constexpr", "",
     "tl.arange takes only numbers known at compile time: write tl.arange(0, BLOCK) and add the rest to it, as in "
     "pid * BLOCK + tl.arange(0, BLOCK)."),
    (r"arange's range must be a power of 2", "",
     "tl.arange gives a power of two of lanes: take tl.arange(0, BLOCK) and switch off those that are too many with a "
     "mask, i < n."),
    (r"arange's end argument must be greater", "", "tl.arange counts upwards: tl.arange(0, BLOCK)."),
    (r"'int' object is not iterable", r"(?<![\w.])(max|min|sum)\(",
     "Python's max, min and sum do not reduce a tile: use tl.max, tl.min, tl.sum with axis=0."),
    (r"'int' object is not iterable|unsupported tensor index", "",
     "Nothing is read by index in a kernel. Of a pointer, load what you need: tl.load(X + offsets, mask=mask). Of a "
     "tile, choose lanes with a mask and tl.where."),
    (r"'tensor' object does not support item assignment", "",
     "Nothing is written by index in a kernel: tl.store(OUT + offsets, value, mask=mask)."),
    (r"neither true nor false as a whole", "",
     "Every lane decides for itself, so there is no if or while on a tile: tl.where(condition, this, that)."),
    (r"Unsupported ptr type .* in `?tl.load", "",
     "tl.load takes addresses, and was given plain numbers: add the offsets to a pointer, tl.load(X + offsets)."),
    (r"Unsupported ptr type .* in `?tl.store", "",
     "tl.store takes addresses first, then values: add the offsets to a pointer, tl.store(OUT + offsets, value)."),
    (r"Mask argument cannot be block type", "",
     "The mask has many lanes and the pointer is one address: add the lanes to it, X + i."),
    (r"axis \d+ out of bounds for shape \[\]", "",
     "There is one value here and no axis to reduce: was a single address loaded where X + i is meant?"),
    (r"'tensor' object has no attribute '(float|half|double|bfloat16|int|long|type|astype)'", "",
     "A Triton tensor changes its type with .to: x.to(tl.float32)."),
    (r"'tensor' object has no attribute", "",
     "A tile is not a torch tensor and has few methods: look for a function of tl that does it."),
    (r"Expected dtype \['fp32'", "",
     "tl.exp, tl.log, tl.sqrt and their kind work in fp32: bring the values there first, x.to(tl.float32)."),
    (r"Both operands must be same dtype", "",
     "tl.dot multiplies tiles of one dtype: bring one to the other's, a.to(b.dtype)."),
    (r"'str' object has no attribute 'scalar'", "", "A dtype is written without quotes: tl.float32."),
    (r"invalid operands of type pointer<.*float|invalid operands of type .*float\d* and pointer", "",
     "An offset is a whole number, and / makes a float: divide with //."),
    (r"invalid operands of type pointer|cannot add pointers together", "",
     "A pointer takes whole numbers as offsets, X + offsets; load values first to compute with them."),
    (r"incompatible dimensions", "",
     "Two tiles of different lengths meet: along each axis they must be as long as one another, or one of them 1. A "
     "column is i[:, None], a row j[None, :]."),
    (r"Shape element \d+ must", "",
     "A tile's shape must be known at compile time: take a tl.constexpr parameter such as BLOCK."),
    (r"object of type 'tensor' has no len", "",
     "A pointer or a tile knows no length: the kernel is given it as a parameter, such as n."),
)
# What kernelcheck calls a fault, and what to do about it where no known mistake is recognised.
FAULTS = {
    "out-of-bounds load": "A lane reads where the tensor has nothing: is the offset right, and does the mask switch "
    "off the lanes that are too many?",
    "out-of-bounds store": "A lane writes where the tensor has nothing: is the offset right, and does the mask switch "
    "off the lanes that are too many?",
    "out-of-bounds atomic": "A lane reaches where the tensor has nothing: is the offset right, and does the mask "
    "switch off the lanes that are too many?",
    "wild pointer": "The address belongs to no tensor of this launch: add offsets to one of the kernel's pointers.",
    "misaligned pointer": "The address lies inside an element: offsets count elements, not bytes.",
    "data race: write/write": "Two programs write the same element: which part of the result belongs to which program?",
    "data race: read/write": "One program reads what another writes, and no order is promised: a program may use only "
    "what it was given and what it wrote itself.",
    "data race: lanes of one store": "Two lanes of one store write the same element: each needs an offset of its own.",
    "poison stored": "What a masked lane holds has reached the result: give the load other=, with a value that the "
    "computation does not notice.",
    "unwritten output": "Some elements are written by no program: is every program's part where it should be, and does "
    "the mask let all of it through?",
    "uninitialised read": "The kernel reads what nobody has written yet: load from what the launch was given.",
    "device_assert failed": "A tl.device_assert in the kernel does not hold: its condition says what you expected.",
}
# Words of a kernel report, in the order in which it uses them: what is looked for in it, and a line on what it means.
REPORT_WORDS = (
    ("each", r"\beach\b", "how often each byte of that tensor was moved; 1.00x is once"),
    ("sector", r"sectors?\b", "32 bytes in a row: a card moves a whole one, however few of them are used"),
    ("coalesced", r"coalesc",
     "the used part of those sectors; neighbouring lanes on neighbouring elements: 100%"),
    ("compulsory", r"compulsory", "what no kernel can do without: every element it uses is moved once"),
    ("bound by", r"bound by", "what takes longest: moving bytes (memory) or tl.dot (compute); less of that is faster"),
    ("registers", r"\d registers",
     "where a thread keeps its values; the fewer it needs, the more threads run at once"),
    ("spills", r"\d spills", "values that found no register and go through memory: 0 is right"),
    ("B shared", r"B shared", "bytes of on-chip memory that the threads of one program share, as for a sum"),
    ("matrix instructions", r"matrix instructions", "those of the tensor cores, which tl.dot becomes"),
    ("LDG", r"\bLDG", "a load: LDG.E takes 4 bytes a thread, LDG.E.64 takes 8, LDG.E.128 takes 16"),
)
UNKNOWN_TL = re.compile(r"module 'triton\.language' has no attribute '(\w+)'")


def what_to_do(error: dict, line: str = "") -> str:
    """The sentence for an error raised inside a kernel, or "". ``line``: the source line that raised it, if known."""
    message = error["message"]
    if unknown := UNKNOWN_TL.search(message):
        close = difflib.get_close_matches(unknown[1], TL_NAMES, n=2, cutoff=0.5)
        meant = " or ".join(f"tl.{name}" for name in close)
        return f"There is no tl.{unknown[1]}" + (f": is {meant} meant?" if meant else ".")
    for said, where, do in WORDS:
        if re.search(said, message) and re.search(where, line):
            return do
    return ""


def explained(report: str) -> str:
    """A line for each word of the report that a learner may not know; "" when it uses none."""
    used = [(name, means) for name, pattern, means in REPORT_WORDS if re.search(pattern, report)]
    width = max((len(name) for name, _ in used), default=0)
    return "\n".join(["what the words mean", *(f"  {name:<{width}}  {means}" for name, means in used)]) if used else ""
