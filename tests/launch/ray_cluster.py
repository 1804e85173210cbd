"""A Ray cluster of two nodes on this machine, until standard input ends. A process of its own keeps Ray's noise away.

The first node has two CPUs and the second one; each says that it has a GPU.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

SMALL = {"num_gpus": 1, "object_store_memory": 80 * 2**20}

cluster = Cluster(
    initialize_head=True, head_node_args={**SMALL, "num_cpus": 2, "include_dashboard": False, "temp_dir": sys.argv[1]}
)
try:
    cluster.add_node(num_cpus=1, **SMALL)
    print("address", cluster.address, flush=True)
    sys.stdin.read()
finally:
    cluster.shutdown()
