import pathlib
import sys

import numpy as np
import pytest
import torch

import kernelcheck

kernelcheck.install()
sys.path.insert(0, str(pathlib.Path(__file__).parent))  # for the kernels in right/ and wrong/


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
    np.random.seed(0)
    torch.set_num_threads(1)
