"""Exercises of chapter 03: attention from scratch, every part of one block, three of them again as kernels."""

from course.specs.transformer_block.attention import ATTENTION
from course.specs.transformer_block.block import BLOCK
from course.specs.transformer_block.gqa_attention import GQA
from course.specs.transformer_block.half_split import HALF_SPLIT
from course.specs.transformer_block.lm_head import LM_HEAD
from course.specs.transformer_block.rms_norm import RMS_NORM
from course.specs.transformer_block.rms_norm_kernel import RMS_NORM_KERNEL
from course.specs.transformer_block.rope import ROPE
from course.specs.transformer_block.rope_kernel import ROPE_KERNEL
from course.specs.transformer_block.swiglu import SWIGLU
from course.specs.transformer_block.swiglu_kernel import SWIGLU_KERNEL

EXERCISES = [
    ATTENTION, RMS_NORM, ROPE, HALF_SPLIT, GQA, SWIGLU, BLOCK, LM_HEAD,
    RMS_NORM_KERNEL, ROPE_KERNEL, SWIGLU_KERNEL,
]
