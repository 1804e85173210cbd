"""One thread a process: two cores shared by parallel tests are faster so, and results do not depend on the machine."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "agg")

import bench.vision  # noqa: F401  before anything imports torchvision
