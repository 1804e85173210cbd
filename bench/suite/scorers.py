"""External weights that score the pairs of a run: what a suite names, as a model that can be built."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from bench.catalogue import architectures
from bench.hashing import OPEN_CLIP
from bench.store import reading
from bench.suite.data_settings import in_data_folder
from bench.suite.keep_settings import ALL_PAIRS
from bench.suite.run import Run, Scorer, run_of_settings
from bench.suite.settings import TowerSettings


def with_scorer(run: Run) -> Run:
    """Return a run with the external model that its data selection names; others as they are.

    A file next to a run's settings.json is read as that run's weights, unless the data selection names towers. Raises
    UserError for a settings.json that is damaged, or of another version.
    """
    keep = run.keep
    if keep.weights is None:
        return run
    place = in_data_folder(keep.weights)
    scorer = None if keep.architecture else _of_run(place, run)
    return replace(run, scorer=scorer or Scorer(place, _plain(run, keep.architecture)))


def _plain(run: Run, architecture: str | None) -> Run:
    """Return settings by which weights of towers alone are read: those of an architecture, or the run's own."""
    plain = replace(run, keep=ALL_PAIRS, reference=None, start=None, noise=None, rate=0.0, noise_file=None)
    if architecture is None:
        return plain
    config = architectures.open_clip_config(architecture)
    size = config["vision_cfg"].get("image_size", 224)  # of both sides, or of each
    towers = TowerSettings(image=architecture, text=architecture, dim=config["embed_dim"])
    data = run.data.model_copy(update={"size": min(size) if isinstance(size, list) else size})
    return replace(plain, towers=towers, data=data)


def _of_run(place: str, run: Run) -> Scorer | None:
    """Return the stored run's model that a file of weights is of; None if no settings.json of a run lies next to it."""
    path = Path(place).absolute().parent / "settings.json"
    if place.startswith(OPEN_CLIP) or not path.is_file():
        return None
    identity, own = _stored(path, path.stat().st_mtime_ns)
    if identity is None or own is None:
        return None
    same = own.data.content() == run.data.content()  # the suite knows where the files lie on this machine
    return Scorer(place, replace(own, data=run.data) if same else own, identity)


@cache
def _stored(path: Path, changed: int) -> tuple[str | None, Run | None]:  # noqa: ARG001  another file is read again
    """Return the id and the settings of the run that a settings.json describes; None if it describes none."""
    settings = reading.read_json(path, "settings") or {}
    identity = settings.get("id")
    return identity, run_of_settings(settings, path) if identity else None
