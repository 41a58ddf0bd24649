"""Values as bytes: a small declared encoding, safetensors for tensors, never pickle.

A value is a JSON tree (null, bool, int, float, str, bytes, list, tuple, dict, tensor) followed by one
safetensors payload that holds the tensors. What cannot be expressed becomes :class:`Opaque`, so that the
other side can say what it got. Decoding is strict: bytes from a worker are hostile until proven dull.

Layout: ``<Q`` length of the JSON, the JSON, the safetensors payload.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from dataclasses import dataclass, field
from typing import Any

import safetensors
import safetensors.torch
import torch

_LENGTH = struct.Struct("<Q")
MAX_DEPTH = 32
MAX_TREE = 8 << 20  # bytes of JSON: what a worker sends is parsed by a process that must live on
MAX_SPREAD = 256 << 20  # bytes that strided tensors may take when they are laid out again
MAX_BITS = 12_000  # of an integer: Python refuses to write those of more than 4,300 digits as text


class WireError(ValueError):
    """The bytes are not a value of this encoding."""


@dataclass(frozen=True)
class Opaque:
    """Stands for a value that has no encoding; carries its type's name and a short repr."""

    type: str
    text: str = ""


@dataclass(frozen=True)
class OnDevice:
    """A tensor that came back from another device than the CPU: its values, and where it lay."""

    values: torch.Tensor
    device: str


@dataclass(frozen=True)
class Build:
    """An input made on the worker's side: call ``name`` of a given module with keyword arguments."""

    module: str
    name: str
    kwargs: dict = field(default_factory=dict)


@dataclass
class Budget:
    """What all values of one answer may take together, on the side that lays them out again."""

    spread: int = MAX_SPREAD
    tree: int = 2 * MAX_TREE

    def spend(self, spread: int = 0, tree: int = 0) -> None:
        """Raises :class:`WireError` when there is not so much left."""
        self.spread -= spread
        self.tree -= tree
        if self.spread < 0 or self.tree < 0:
            raise WireError("too large")


def encode(value: Any) -> bytes:
    """Bytes of ``value``. Never fails on an odd value: what has no encoding becomes :class:`Opaque`."""
    sent = _Sent()
    tree = _to_tree(value, sent, 0)
    head = json.dumps(tree, separators=(",", ":"), allow_nan=False).encode()
    return _LENGTH.pack(len(head)) + head + sent.payload()


def decode(data: bytes, allow_build: bool = False, budget: Budget | None = None) -> Any:
    """The value of ``data``. Raises :class:`WireError` for anything that :func:`encode` does not write.

    ``budget``: shared by values that count together; without one this value has its own.
    """
    budget = budget or Budget()
    try:
        (length,) = _LENGTH.unpack_from(data)
        head, payload = data[8 : 8 + length], data[8 + length :]
        if len(head) != length or (length > MAX_TREE and not allow_build):
            raise WireError("truncated" if len(head) != length else "too large")
        if not allow_build:
            budget.spend(tree=length)
        tensors = _Received(safetensors.torch.load(bytes(payload)))
        tensors.budget = budget
        return _from_tree(json.loads(head), tensors, allow_build, 0)
    except WireError:
        raise
    except Exception as error:  # hostile bytes may fail in any of the parsers
        raise WireError(f"not a value: {type(error).__name__}") from None


def plain_text(text: str, length: int) -> str:
    """Text of an answer as it may stand in a report: no terminal codes, nothing that turns the line round, bounded."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text[:length])


class _Sent:
    """Tensors on their way. One that stands in several places (a case that is called twice) travels once."""

    def __init__(self):
        self.copies: list[torch.Tensor] = []
        self.trees: dict[int, tuple[dict, torch.Tensor]] = {}  # by id; the tensor is kept, so that its id stays its own

    def add(self, copy: torch.Tensor) -> str:
        self.copies.append(copy)
        return str(len(self.copies) - 1)

    def payload(self) -> bytes:
        """As safetensors.torch.save, which looks at each tensor three times more: these are known to be dense."""
        specs = {str(number): safetensors.TensorSpec(dtype=str(copy.dtype).removeprefix("torch."), shape=copy.shape,
                                                     data_ptr=copy.data_ptr(), data_len=copy.nbytes)
                 for number, copy in enumerate(self.copies)}
        return bytes(safetensors.serialize(specs))


class _Received(dict):
    """Tensors that came, by name, and what may still be spent on laying them out with their strides."""

    budget: Budget


def clone(value: Any, allow_build: bool = False) -> Any:
    """What ``decode(encode(value))`` gives, without the bytes: a deep copy that shares no memory with ``value``."""
    return _copy(value, allow_build, 0)


_SENDABLE = frozenset({
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32,
    torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
})  # what safetensors has a name for
_PLAIN = frozenset({type(None), bool, float, str, bytes})
_LARGEST = 1 << MAX_BITS


def _is_plain(value: Any) -> bool:
    """Does it travel as it is, and cannot be changed?"""
    return type(value) in _PLAIN or (type(value) is int and -_LARGEST < value < _LARGEST)


def _too_long(value: int) -> Opaque:
    """Stands for an integer that cannot be written out."""
    return Opaque("int", f"an integer of about {int(value.bit_length() * math.log10(2)) + 1:,} digits")


def _copy(value: Any, allow_build: bool, depth: int) -> Any:
    kind = type(value)
    if _is_plain(value):
        return value
    if depth > MAX_DEPTH:
        return decode(encode(value), allow_build)
    if kind is dict:
        items = value.items()
        if all(_is_plain(k) and _is_plain(v) for k, v in items):
            return dict(items)
        return {_copy(k, allow_build, depth + 1): _copy(v, allow_build, depth + 1) for k, v in items}
    if kind is list or kind is tuple:
        return kind([item if _is_plain(item) else _copy(item, allow_build, depth + 1) for item in value])
    if kind is Build and allow_build:
        return Build(value.module, value.name, _copy(value.kwargs, allow_build, depth + 1))
    if kind is torch.Tensor:
        copy = _copy_tensor(torch.Tensor.detach(value))
        if copy is not None:
            return copy
    return decode(encode(value), allow_build)


def _copy_tensor(plain: torch.Tensor) -> torch.Tensor | None:
    """A copy of a dense CPU tensor, laid out as decoding would; None when only the bytes can tell what comes of it."""
    if (plain.layout is not torch.strided or plain.is_quantized or plain.device.type != "cpu" or plain.is_conj()
            or plain.dtype not in _SENDABLE):
        return None
    if plain.is_contiguous() or not plain.numel() or 0 in plain.stride():
        return torch.empty(plain.shape, dtype=plain.dtype).copy_(plain)
    extent = sum((size - 1) * step for size, step in zip(plain.shape, plain.stride())) + 1
    if extent > 4 * plain.numel():
        return None
    return torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype).copy_(plain)


def _to_tree(value: Any, sent: _Sent, depth: int) -> Any:
    if depth > MAX_DEPTH:
        return {"$": "opaque", "type": "nested", "text": f"more than {MAX_DEPTH} levels deep"}

    def inner(item: Any) -> Any:
        return _to_tree(item, sent, depth + 1)

    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        if not _is_plain(value):
            value = _too_long(value)
            return {"$": "opaque", "type": value.type, "text": value.text}
        return value if abs(value) < 2**53 else {"$": "int", "v": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$": "float", "v": repr(value)}
    if kind is bytes:
        return {"$": "bytes", "v": base64.b64encode(value).decode()}
    if kind is list:
        return [inner(item) for item in value]
    if kind is tuple:
        return {"$": "tuple", "v": [inner(item) for item in value]}
    if kind is dict:
        return {"$": "dict", "v": [[inner(key), inner(item)] for key, item in value.items()]}
    if kind is Build:
        return {"$": "build", "module": value.module, "name": value.name, "kwargs": inner(value.kwargs)}
    if kind is Opaque:
        return {"$": "opaque", "type": value.type, "text": value.text}
    if isinstance(value, torch.Tensor):
        if id(value) not in sent.trees:
            sent.trees[id(value)] = _tensor_to_tree(value, sent), value
        return sent.trees[id(value)][0]
    return {"$": "opaque", "type": f"{kind.__module__}.{kind.__qualname__}"[:200], "text": _short_repr(value)}


def _tensor_to_tree(value: torch.Tensor, sent: _Sent) -> dict:
    # A tensor subclass could answer for itself; below this line only the plain tensor speaks.
    with torch._C.DisableTorchFunctionSubclass():
        try:
            plain = torch.Tensor.detach(value).as_subclass(torch.Tensor)
            if plain.layout is not torch.strided or plain.is_quantized or plain.device.type == "meta":
                raise ValueError("not a dense tensor")
            if plain.dtype not in _SENDABLE:
                return {"$": "opaque", "type": f"a tensor of {plain.dtype}", "text": ""}
            copy = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain)
            tree = {"$": "tensor", "v": sent.add(copy), "device": plain.device.type}
            if not plain.is_contiguous() and plain.numel() and 0 not in plain.stride():
                tree["stride"] = list(plain.stride())
            return tree
        except Exception as error:
            return {"$": "opaque", "type": "torch.Tensor", "text": f"{type(error).__name__}: {error}"[:200]}


def _short_repr(value: Any) -> str:
    try:
        return repr(value)[:200]
    except Exception:
        return ""


def _from_tree(tree: Any, tensors: _Received, allow_build: bool, depth: int) -> Any:
    if depth > 2 * MAX_DEPTH + 4:
        raise WireError("too deep")

    def inner(item: Any) -> Any:
        return _from_tree(item, tensors, allow_build, depth + 1)

    if tree is None or type(tree) in (bool, int, float, str):
        return tree
    if type(tree) is list:
        return [inner(item) for item in tree]
    if type(tree) is not dict:
        raise WireError("unknown node")
    tag = tree.get("$")
    if tag == "tensor":
        tensor = tensors[tree["v"]]
        if "stride" in tree:
            tensor = _with_stride(tensor, tree["stride"], tensors)
        return tensor if tree["device"] == "cpu" else OnDevice(tensor, str(tree["device"])[:20])
    if tag == "tuple":
        return tuple(inner(item) for item in tree["v"])
    if tag == "dict":
        return {inner(key): inner(item) for key, item in tree["v"]}
    if tag == "int":
        value = int(tree["v"], 16)
        return value if _is_plain(value) else _too_long(value)
    if tag == "float":
        return float(tree["v"])
    if tag == "bytes":
        return base64.b64decode(tree["v"])
    if tag == "opaque":
        return Opaque(plain_text(str(tree["type"]), 200), plain_text(str(tree["text"]), 200))
    if tag == "build" and allow_build:
        return Build(str(tree["module"]), str(tree["name"]), inner(tree["kwargs"]))
    raise WireError(f"unknown tag {tag!r}")


def _with_stride(tensor: torch.Tensor, stride: list[int], received: _Received) -> torch.Tensor:
    extent = sum((size - 1) * step for size, step in zip(tensor.shape, stride)) + 1
    if len(stride) != tensor.dim() or min(stride) < 1 or extent > 64 * tensor.numel() + 4096:
        raise WireError("odd strides")
    received.budget.spend(spread=extent * tensor.element_size())
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor)
