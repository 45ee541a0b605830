"""Settings of the whole test run, and small real parts that several tests use."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch
from hypothesis import settings

settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def few_candidates():
    """Six candidates instead of twenty: networks that know nothing end none of them early."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ddot.infill.passes.CANDIDATES", 6)
        yield


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
