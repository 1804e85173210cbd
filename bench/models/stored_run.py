"""A stored run's final model, rebuilt from its settings and weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.errors import UserError
from bench.evaluation import PROTOCOL
from bench.evaluation.features import Features, evaluation_mode
from bench.hashing import file_hash
from bench.store import RunStore, Store
from bench.store.run import SHORT_ID, find_run
from bench.store.verify import refuse_changed_in_run
from bench.suite.run import Run, run_of_settings
from bench.towers.build import OpenClipTowers
from bench.training.checkpoint import weights_name
from bench.training.inputs import InputsReader
from bench.training.job import available_device, rebuilt_model
from methods.protocol import Method

TOLERANCE = 1e-4  #: largest difference of an entry of unit embeddings, between ours and open_clip's
PROBES = ("a photo of a cat", "red apple , side view", "two dogs")


@dataclass(frozen=True)
class LoadedRun:
    """A run with the features of its final weights; the features hold the method and the towers."""

    id: str
    run: Run
    features: Features

    @property
    def title(self) -> str:
        return f"{self.id[:SHORT_ID]}  {self.run.title}"


def load_run(store: Store, prefix: str) -> LoadedRun:
    """Load the run whose id starts with `prefix`, at its final weights, on the first GPU or the CPU.

    Raises UserError if there is no such run, and as `rebuild_model` does.
    """
    out = find_run(store, prefix)
    run, towers, method = rebuild_model(out, available_device())
    return LoadedRun(out.id, run, Features(method, towers, file_hash(out.path(weights_name(1.0))), PROTOCOL, None))


def single_run_of(store: Store, name: str) -> str:
    """Return the id of the one run that a suite has. Raises UserError if it is not planned here or has several runs."""
    plan = store.plan(name)
    if plan is None:
        raise UserError(f"suite:{name}: is not in {store.root}; train it with: bench run {name} --results {store.root}")
    runs = list(dict.fromkeys(cell["run"] for cell in plan["cells"]))
    if len(runs) != 1:
        raise UserError(f"suite:{name}: has {len(runs)} runs; choose one of `bench status {name}` as run:ID")
    return str(runs[0])


def rebuild_model(out: RunStore, device: torch.device) -> tuple[Run, OpenClipTowers, Method]:
    """Build a stored run's towers and method again and load its final weights into them.

    Raises UserError if the run has no final weights, if they are not those that were stored when it was finished, or if
    they do not fit the method as it is now.
    """
    path = out.path(weights_name(1.0))
    if not path.exists():
        state = out.status()["state"]
        suite = "run the suite that it comes from: bench run SUITE"
        again = f"bench store retrain {out.id[:SHORT_ID]} --weights"
        fix = f"train it again for them: {again} --results {out.folder.parents[1]}" if state == "done" else suite
        raise UserError(f"run {out.id[:SHORT_ID]} has no final weights ({state}); {fix}")
    refuse_changed_in_run(out, path.name)
    run = run_of_settings(out.settings(), out.path("settings.json"))
    return run, *rebuilt_model(run, InputsReader().for_model(run), path, device)


def probe_inputs(towers: OpenClipTowers, run: Run) -> tuple[Tensor, Tensor]:
    """Return three random images and the tokens of `PROBES`, on the towers' device."""
    weight, draws = next(towers.visual.parameters()), torch.Generator().manual_seed(0)
    images = torch.randn(3, 3, run.data.size, run.data.size, generator=draws, dtype=weight.dtype)
    return images.to(weight.device), towers.tokenize(list(PROBES)).to(weight.device)


def refuse_additions(method: Method, towers: OpenClipTowers, run: Run, *kinds: str) -> None:
    """Raise UserError if a method's embeddings of "images" or "texts" are not those of the towers alone."""
    images, tokens = probe_inputs(towers, run)
    with evaluation_mode(method, towers):
        pairs = {
            "images": (method.image_features(towers, images), towers.encode_image(images)),
            "texts": (method.text_features(towers, tokens), towers.encode_text(tokens)),
        }
    for what, (own, plain) in ((kind, pairs[kind]) for kind in kinds):
        if distance_of(own["embedding"], plain) > TOLERANCE:
            raise UserError(
                f"{run.method}: its embeddings of {what} are not those of the towers alone, because it adds to them; "
                "neither a model of open_clip nor an encoder of features can hold it"
            )


def distance_of(one: Tensor, other: Tensor) -> float:
    """Return the largest absolute difference between the entries of both, after normalising each row."""
    return float((F.normalize(one.float(), dim=-1) - F.normalize(other.float(), dim=-1)).abs().max())
