"""Runs of MLflow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.launch.trackers import PROJECT
from bench.store import RunStore

TAG = "bench.run"  #: tag with the run's whole id
PARAMS = 100  #: parameters that a server takes at once
LETTERS = 500  #: of a parameter that every version of MLflow takes


class MLflow:
    """Sends to a run of MLflow: settings as parameters, metrics and records as metrics at their steps.

    MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME are honoured; without the first, files lie in `folder`. Runs of the
    same id that earlier processes sent are deleted as MLflow deletes: they can be restored.
    """

    def __init__(self, folder: Path, run: RunStore, title: str) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        address = os.environ.get("MLFLOW_TRACKING_URI")
        if not address:  # MLflow 3 asks for this variable before it writes files
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = MlflowClient(address or folder.resolve().as_uri())
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
        for old in self._client.search_runs([experiment], f"tags.`{TAG}` = '{run.id}'"):
            self._client.delete_run(old.info.run_id)
        self._id = self._client.create_run(experiment, tags={TAG: run.id}, run_name=title).info.run_id
        settings = [Param(_name(name), str(value)[:LETTERS]) for name, value in _flat(run.settings())]
        for start in range(0, len(settings), PARAMS):
            self._client.log_batch(self._id, params=settings[start : start + PARAMS])

    def _experiment(self, name: str) -> str:
        """Return the id of the experiment; make it if it is not there."""
        from mlflow.exceptions import MlflowException

        known = self._client.get_experiment_by_name(name)
        if known is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another process made it meanwhile
                known = self._client.get_experiment_by_name(name)
                if known is None:
                    raise
        return str(known.experiment_id)

    def line(self, step: int, values: Mapping[str, float]) -> None:
        """See `bench.launch.trackers.Sink`."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        points = [Metric(_name(name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=points)

    def record(self, name: str, at: float, step: int, value: float) -> None:
        """See `bench.launch.trackers.Sink`."""
        self.line(step, {name: value})

    def close(self) -> None:
        """See `bench.launch.trackers.Sink`."""
        self._client.set_terminated(self._id)


def _name(name: str) -> str:
    """Replace letters that MLflow does not allow in a name."""
    return re.sub(r"[^\w. /-]", "_", name, flags=re.ASCII)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings under names joined by dots."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + str(name), value
