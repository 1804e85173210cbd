"""In a process of its own, because mlflow leaves threads: an interrupted run, and what its files then hold."""

from __future__ import annotations

import sys
from pathlib import Path

from mlflow import MlflowClient
from test_trackers import interrupted

from bench.store import Store


def main() -> None:
    root = Path(sys.argv[1])
    interrupted(Store(root).run("c" * 64), "mlflow")
    client = MlflowClient((root / "mlflow").resolve().as_uri())
    experiment = client.get_experiment_by_name("robust-cl-bench")
    (run,) = client.search_runs([experiment.experiment_id])
    print(run.info.run_name, run.info.status, run.data.tags["bench.run"] == "c" * 64)
    for name in sorted(run.data.metrics):
        print(name, [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)])


if __name__ == "__main__":
    main()
