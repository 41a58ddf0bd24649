"""Values that nobody gave: masked lanes without `other`, memory from torch.empty, outputs never written."""

import numpy as np

from . import faults, floats
from .faults import KernelFault, Place
from .memory import Argument, Region

# Poison is a NaN that no arithmetic makes by itself: the seven top bits of its significand are 0x6D, and they
# survive conversion between fp64, fp32, fp16 and bf16. (Mask of the bits compared, poison) by dtype.
_TOP = 0x6D
POISON_BITS = {
    "fp64": (0x7FFFE00000000000, 0x7FF0000000000000 | _TOP << 45),
    "fp32": (0x7FFF0000, 0x7F800000 | _TOP << 16),
    "fp16": (0x7FF8, 0x7C00 | _TOP << 3),
    "bf16": (0x7FFF, 0x7F80 | _TOP),
    "fp8e4nv": (0x7F, 0x7F),
    "fp8e5": (0x7F, 0x7F),
}


class Values:
    """The part of a Trace that looks at values: poison, uninitialised reads, unwritten outputs, asserts."""

    def _fill(self, shape, np_dtype, dtype: str) -> np.ndarray:
        """What masked lanes without `other` hold: undefined on a GPU, so poison here, or zeros if it is off."""
        if not self.poison:
            return np.zeros(shape, np_dtype)
        if dtype in POISON_BITS:
            return np.full(shape, POISON_BITS[dtype][1], f"u{np_dtype.itemsize}").view(np_dtype)
        if np_dtype.kind == "b":
            return np.ones(shape, bool)
        return np.full(shape, np.iinfo(np_dtype).max - (0x25 if np_dtype.itemsize > 1 else 0x25 & 0x1F), np_dtype)

    def _uninitialised(self, argument: Argument, index, writer) -> None:
        element = (np.arange(index.start, index.stop) if isinstance(index, slice) else index)[writer == 0]
        element = element - argument.region.start
        problem = (
            f"{argument.name}, shape {list(argument.region.shape)}: {element.size} elements come from torch.empty "
            f"and nobody wrote them; the first is element {element[0]}"
        )
        raise KernelFault(
            faults.UNINITIALISED,
            problem,
            place=self._place(),
            tensor=argument.name,
            shape=argument.region.shape,
            offsets=element,
            lanes=element.size,
            active=writer.size,
        )

    def _check_poison(self, argument: Argument, values, bits, dtype: str) -> None:
        """A store of poison; or of NaN, if the program met poison and no tensor it read holds NaN or infinity."""
        if dtype in POISON_BITS:
            mask, poison = POISON_BITS[dtype]
            bad = (bits & bits.dtype.type(mask)) == bits.dtype.type(poison)
            if not bad.any():
                numbers = floats.decode(values, dtype) if dtype in floats.SOFT else values
                bad = np.isnan(numbers)
                if bad.any() and not self._inputs_finite():
                    return
        elif values.dtype.kind == "b":
            return
        else:
            bad = values == self._fill((), values.dtype, dtype)
        if not bad.any():
            return
        source = self._poisoned
        problem = (
            f"{int(bad.sum())} of {bad.size} values stored to {argument.name} come from masked lanes of the load in "
            f"line {source.line}, which has no other=: `{source.source}`"
        )
        raise KernelFault(
            faults.POISON,
            problem,
            place=self._place(),
            tensor=argument.name,
            shape=argument.region.shape,
            lanes=int(bad.sum()),
            active=bad.size,
        )

    def _inputs_finite(self) -> bool:
        """Is all that was read finite? What lies between the rows of a strided tensor may be anything."""
        for argument in self._arguments:
            region = argument.region
            if region.dtype not in POISON_BITS:
                continue
            read = region.mine(region.shadow.ever_read)
            if not read.any():
                continue
            values = region.shadow.values[region.part][read]
            if region.dtype in floats.SOFT:
                values = floats.decode(values, region.dtype)
            else:
                values = values.view({"fp64": np.float64, "fp32": np.float32, "fp16": np.float16}[region.dtype])
            if not np.isfinite(values).all():
                return False
        return True

    def check_outputs(self) -> None:
        """Raise if an output has elements that no kernel wrote.

        Outputs are those named in `outputs`; else every tensor made by torch.empty in the run that a kernel
        stored to and none loaded from.
        """
        for region in self._outputs():
            missing = np.flatnonzero(
                ~region.mine(region.shadow.writer > 0) & (True if region.inside is None else region.inside)
            )
            if not missing.size:
                continue
            problem = (
                f"{region.name}, shape {list(region.shape)}: {missing.size} of {region.numel} elements were written by "
                f"no program; the first is element {missing[0]}"
            )
            raise KernelFault(
                faults.UNWRITTEN,
                problem,
                place=Place(region.kernel, region.kernel, "", 0, None),
                tensor=region.name,
                shape=region.shape,
                offsets=missing,
                lanes=missing.size,
                active=region.numel,
            )

    def _outputs(self) -> list[Region]:
        if self.outputs is None:
            return [
                r
                for r in self.regions
                if r.shadow.fresh and r.mine(r.shadow.writer > 0).any() and not r.mine(r.shadow.ever_read).any()
            ]
        chosen = []
        for output in self.outputs:
            if isinstance(output, str):
                found = [r for r in self.regions if r.name == output]
            else:
                found = [r for r in self.regions if r.address == output.data_ptr() and r.shape == tuple(output.shape)]
            if not found:
                label = output if isinstance(output, str) else f"a tensor of shape {list(output.shape)}"
                have = ", ".join(r.name for r in self.regions) or "none"
                raise ValueError(f"outputs names {label}, which no kernel of this run was given; it saw: {have}")
            chosen += found
        return chosen

    def device_assert(self, condition: np.ndarray, message: str) -> None:
        if not condition.all():
            problem = f"{int((~condition).sum())} of {condition.size} lanes: {message}"
            raise KernelFault(
                faults.ASSERT,
                problem,
                place=self._place(),
                lanes=int((~condition).sum()),
                active=condition.size,
            )
