"""Shared test configuration."""

import os
import sys
from pathlib import Path

import torch
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # the catalogue

# Each test process gets one torch thread: the processes already share the cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

settings.register_profile("project", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("project")
