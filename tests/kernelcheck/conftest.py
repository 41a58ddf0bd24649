import numpy as np
import pytest
import torch

import kernelcheck

kernelcheck.install()


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
    np.random.seed(0)
    torch.set_num_threads(1)
