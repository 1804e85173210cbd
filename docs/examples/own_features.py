"""Features of your own encoders, here random numbers instead: `python own_features.py`, seconds.

Heads are trained on them, which is CLIP's or any other loss on frozen encoders.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import bench

SUITE = """\
name: heads
data: {name: mine, features: mine-features}
noise: {rates: [0.0, 0.4]}
budget: {epochs: 10}
towers: {image: features, text: features, head: {kind: linear}, dim: 64}
train: {batch: 128, lr: 1.0e-3}
evaluate: {tasks: [noise_detection], curve: []}  # of the training pairs; other tasks read evaluation sets
methods: [clip, rince]
"""

if __name__ == "__main__":
    draw = np.random.default_rng(0)
    meaning = draw.normal(size=(2000, 32))  # what an image and its text share
    np.save("image.npy", (meaning @ draw.normal(size=(32, 96)) + 6 * draw.normal(size=(2000, 96))).astype(np.float32))
    np.save("text.npy", (meaning @ draw.normal(size=(32, 64)) + 6 * draw.normal(size=(2000, 64))).astype(np.float32))
    pairs = {"key": [f"{row:05d}" for row in range(2000)], "caption": [f"caption {row}" for row in range(2000)]}
    pd.DataFrame(pairs).to_parquet("pairs.parquet")
    arrays = ["--images", "image.npy", "--texts", "text.npy"]
    command = [sys.executable, "-m", "bench", "features", "convert", "pairs.parquet", "mine-features"]
    subprocess.run([*command, *arrays], check=True)
    Path("heads.yaml").write_text(SUITE)
    bench.run_suite("heads.yaml", "results")
    print(bench.Results("results", "heads").table("noise_detection").filter(regex="^method|AUROC$"))
