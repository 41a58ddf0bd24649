"""Exercises of the Triton primer: masked add, row sum, transposed tile, row softmax.

Blanks first, the signature alone last. A kernel is launched by the exercise's ``drive``, so that grid, block and
strides are the same for everyone; its source travels with the job.
"""

from course.specs.triton_primer.masked_add import MASKED_ADD
from course.specs.triton_primer.row_softmax import SOFTMAX
from course.specs.triton_primer.row_sum import ROW_SUM
from course.specs.triton_primer.transpose import TRANSPOSE

EXERCISES = [MASKED_ADD, ROW_SUM, TRANSPOSE, SOFTMAX]
