"""Floats that NumPy lacks, as bits: bf16 (uint16) and the fp8 formats (uint8), and tf32 inside fp32.

The interpreter keeps such a tensor as raw bits. `decode` gives its values in fp32, `encode` rounds fp32 (or
fp64, fp16) to nearest, ties to even, as the GPU's conversion instructions do.
"""

import numpy as np
import torch

FP8 = {
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}
# PTX cvt.rn.satfinite: a finite value beyond the range becomes the largest finite one.
_LARGEST = {"fp8e4nv": 448.0, "fp8e5": 57344.0}
SOFT = {"bf16", *FP8}  # names of triton dtypes whose NumPy array holds bits, not values


def decode(bits: np.ndarray, name: str) -> np.ndarray:
    """Values in fp32 of an array of bits of the soft float `name`."""
    if name == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    flat = torch.from_numpy(np.ascontiguousarray(bits)).view(FP8[name])
    return flat.to(torch.float32).numpy().reshape(bits.shape)


def encode(values: np.ndarray, name: str) -> np.ndarray:
    """Bits of the soft float `name`, rounded to nearest even. NaN keeps the top bits of its payload."""
    values = np.asarray(values)
    if name == "bf16":
        bits = np.ascontiguousarray(values, np.float32).reshape(values.shape).view(np.uint32)
        nearest = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
        quiet = (bits >> 16) | np.uint32(0x40)
        return np.where((bits & 0x7FFFFFFF) > 0x7F800000, quiet, nearest).astype(np.uint16)
    tensor = torch.from_numpy(np.ascontiguousarray(values, np.float32))
    if name in _LARGEST:
        limit = _LARGEST[name]
        tensor = torch.where(tensor.isfinite(), tensor.clamp(-limit, limit), tensor)
    return tensor.to(FP8[name]).view(torch.uint8).numpy().reshape(values.shape)


def to_tf32(values: np.ndarray) -> np.ndarray:
    """fp32 values as a tf32 tensor core reads them: the low 13 bits of the significand do not count.

    Triton passes the fp32 register to mma.sync and wgmma as it is: the PTX of a tf32 dot, for sm_80 and for
    sm_90, holds no cvt.rna.tf32 (tests/kernelcheck/test_compile.py looks). So this cuts, it does not round.
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    special = (bits & 0x7F800000) == 0x7F800000
    return np.where(special, bits, bits & np.uint32(0xFFFFE000)).view(np.float32)
