"""What every kernel's wrapper checks before a launch."""

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def check_dtype(*tensors: Tensor) -> None:
    """ValueError unless all tensors share one dtype that the kernels compute in, with statistics in fp32."""
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        names = ", ".join(sorted(str(dtype) for dtype in dtypes))
        raise ValueError(f"the Triton kernels take tensors of one dtype, fp32, fp16 or bf16; got {names}")
