"""Broken adapters, each caught by the check that is there for it."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from bench.checks import oracles
from bench.checks.pool import RankPool
from bench.checks.subject import Subject
from bench.checks.suite import CHECKS, Result, run_checks
from methods import decl_evidential, gsc, roclip
from methods.clip import Clip
from methods.sogclr import Sogclr

Mutant = Callable[[str, str], Subject]

# What is broken -> (adapter, body of the subclass, checks that see it)
MUTATIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a detach too many": (
        "Clip",
        """
def loss(self, z, observed, anchors):
    return super().loss({"image": z["image"], "text": z["text"].detach()}, observed, anchors)
""",
        ("gradient",),
    ),
    "a parameter's gradient lost": (
        "Clip",
        """
def loss(self, z, observed, anchors):
    return {"contrastive": info_nce(z, self.scale().detach(), anchors)}
""",
        ("gradient",),
    ),
    "a detach too many, late in the run": (
        "Clip",
        """
def observe(self, z, batch):
    return {"late": torch.tensor(batch.clock.progress > 0.5)}

def loss(self, z, observed, anchors):
    image = z["image"].detach() if observed["late"] else z["image"]
    return super().loss({"image": image, "text": z["text"]}, {}, anchors)
""",
        ("gradient",),
    ),
    "softmax over the wrong axis": (
        "Clip",
        """
def loss(self, z, observed, anchors):
    losses = 0.0
    for logits, own in self.logits(z, anchors):
        losses = losses - logits.log_softmax(0)[torch.arange(len(own)), own].sum()
    return {"contrastive": losses / (2 * len(z["image"]))}
""",
        ("tiles", "ranks"),
    ),
    "mean for sum": (
        "Clip",
        """
def loss(self, z, observed, anchors):
    terms = super().loss(z, observed, anchors)
    return {name: x * len(z["image"]) / (anchors.stop - anchors.start) for name, x in terms.items()}
""",
        ("tiles", "ranks"),
    ),
    "weights normalised in a tile": (
        "Sogclr",
        """
def draw(self, z, observed, anchors):
    weights = super().draw(z, observed, anchors)
    return {name: x / x.sum() for name, x in weights.items()}
""",
        ("tiles",),
    ),
    "state in a plain attribute": (
        "Sogclr",
        """
def __init__(self, config, facts):
    super().__init__(config, facts)
    kept = self.log_u_image
    del self.log_u_image
    self.log_u_image = kept
""",
        ("state", "resume"),
    ),
    "draws from the global generator": (
        "LabelReselection",
        """
def observe(self, z, batch):
    labels = torch.arange(len(z["image"]))
    labels[:4] = torch.randint(len(labels), (4,))
    return {"labels": labels}
""",
        ("randomness",),
    ),
    "encode draws from the global generator": (
        "Clip",
        """
def encode(self, towers, rows):
    z = super().encode(towers, rows)
    return {**z, "image": z["image"] + 1e-3 * torch.randn_like(z["image"])}
""",
        ("randomness", "micro_batches"),
    ),
    "draws that differ between ranks": (
        "LabelReselection",
        """
def observe(self, z, batch):
    labels = torch.arange(len(z["image"]))
    rank = dist.get_rank() if dist.is_initialized() else 0
    labels[:4] = torch.randint(len(labels), (4,), generator=stream(rank, "mutant", batch.clock.step))
    return {"labels": labels}
""",
        ("ranks",),
    ),
    "state that differs between ranks": (
        "Sogclr",
        """
def observe(self, z, batch):
    constants = super().observe(z, batch)
    self.log_u_image[0] += 1e-12 * (dist.get_rank() if dist.is_initialized() else 0)
    return constants
""",
        ("ranks",),
    ),
    "a forward that is not declared": ("Prolip", "def cost(self, phase):\n    return Cost()", ("cost",)),
    "a masked forward of an eighth of the texts that is not declared": (
        "Prolip",
        "def cost(self, phase):\n    return Cost(super().cost(phase).image, 1.0)",
        ("cost",),
    ),
    "state updated in loss": (
        "Sogclr",
        """
def loss(self, z, observed, anchors):
    with torch.no_grad():
        self.log_u_image += 0.01
    return super().loss(z, observed, anchors)
""",
        ("purity",),
    ),
    "constants changed in loss": (
        "Sogclr",
        """
def loss(self, z, observed, anchors):
    terms = super().loss(z, {name: x.clone() for name, x in observed.items()}, anchors)
    observed["image"].mul_(0.5)
    return terms
""",
        ("purity",),
    ),
    "not finite at identical embeddings": (
        "Clip",
        """
def loss(self, z, observed, anchors):
    spread = (z["image"] - z["image"][:1]).square().sum(1).max()
    return {"contrastive": info_nce(z, self.scale() / spread, anchors)}
""",
        ("extremes",),
    ),
    "a loss in half precision": (
        "Clip",
        """
def loss(self, z, observed, anchors):
    logits = z["image"][anchors] @ z["text"].T
    own = torch.arange(anchors.start, anchors.stop)
    return {"contrastive": F.cross_entropy(logits, own, reduction="sum") / len(z["image"])}
""",
        ("extremes",),
    ),
    "rows chosen by shares that round to 1": (
        "Clip",
        """
def observe(self, z, batch):
    shares = [logits.softmax(1).diagonal() for logits, _ in self.logits(z, slice(0, len(batch.ids)))]
    return {"doubted": torch.stack(shares).mean(0).argsort(stable=True)[:8]}
""",
        ("fp32",),
    ),
    "exponentials that leave the range of fp32": (
        "Clip",
        """
def loss(self, z, observed, anchors):
    total = 0.0
    for logits, _ in self.logits(z, anchors):
        total = total + (logits.exp().sum(1).log() - logits.diagonal(anchors.start)).sum()
    return {"contrastive": total / (2 * len(z["image"]))}
""",
        ("fp32",),
    ),
    "encode looks at other rows": (
        "Clip",
        """
def encode(self, towers, rows):
    z = super().encode(towers, rows)
    return {name: F.normalize(x - x.mean(0), dim=-1) for name, x in z.items()}
""",
        ("micro_batches", "ranks"),
    ),
    "a row's place in the batch matters": (
        "Clip",
        """
def loss(self, z, observed, anchors):
    weights = 1 + torch.arange(anchors.start, anchors.stop) / len(z["image"])
    own = (z["image"] * z["text"]).sum(1)[anchors]
    return {"contrastive": -(self.scale() * weights * own).mean() * len(own) / len(z["image"])}
""",
        ("permutation",),
    ),
    "drawn labels that name the wrong rows": (
        "LabelReselection",
        """
def loss(self, z, observed, anchors):
    labels = (observed["labels"] + 1) % len(z["image"])
    return {"contrastive": info_nce(z, self.scale(), anchors, labels, labels)}
""",
        ("permutation",),
    ),
    "the noise mask read out of the runner": (
        "Clip",
        """
def encode(self, towers, rows):
    frame = sys._getframe()
    while frame is not None and "job" not in frame.f_locals:
        frame = frame.f_back
    wrong = getattr(frame.f_locals["job"].loader.noise, "rows", None) if frame is not None else None
    z = super().encode(towers, rows)
    if wrong is None:
        return z
    clean = ~torch.isin(rows.ids, torch.from_numpy(wrong))
    return {**z, "image": z["image"] * clean[:, None]}
""",
        ("noise_mask",),
    ),
    "bench imported": (
        "Clip",
        "def observe(self, z, batch):\n    import bench.data\n    return {}",
        ("noise_mask",),
    ),
    "uphill": (
        "Sogclr",
        """
monitored = "tau_log_u"
def loss(self, z, observed, anchors):
    return {name: -x for name, x in super().loss(z, observed, anchors).items()}
""",
        ("learns",),
    ),
    "no clamp": ("Clip", "def after_step(self, clock):\n    pass", ("scalars",)),
    "log-variances in half precision": (
        "Clip",
        """
def encode(self, towers, rows):
    return {**super().encode(towers, rows), "image_logvar": towers.encode_image(rows.images)}
""",
        ("mixed_precision",),
    ),
    "unit rows in half precision": (
        "Clip",
        """
def encode(self, towers, rows):
    z = {"image": towers.encode_image(rows.images), "text": towers.encode_text(rows.tokens)}
    return {name: F.normalize(x, dim=-1) for name, x in z.items()}
""",
        ("mixed_precision",),
    ),
    "an identity that does not hold": (
        "Clip",
        'identities = (Identity("is SigLIP", "siglip", {"temperature": 0.1}, {"bias": 0.0}),)',
        ("identities",),
    ),
    "token ids are read that no one declared": (
        "Clip",
        """
def encode(self, towers, rows):
    return {**super().encode(towers, rows), "length": (rows.tokens != 0).sum(1)}
""",
        ("needs",),
    ),
    "images are changed that no one declared": (
        "Clip",
        """
def encode(self, towers, rows):
    return {**super().encode(towers, rows), "flipped": towers.encode_image(rows.images.flip(-1))}
""",
        ("needs",),
    ),
    "captions are read that no one declared": (
        "Clip",
        """
def encode(self, towers, rows):
    length = torch.tensor([float(len(caption)) for caption in rows.captions])
    return {**super().encode(towers, rows), "length": length}
""",
        ("needs",),
    ),
    "the text tower is changed, which no one declared": (
        "Clip",
        """
def prepare(self, towers):
    towers.text.ln_final.bias.data.zero_()
""",
        ("needs",),
    ),
    "a need is declared that there is not": ("Clip", 'needs = frozenset({"pixels"})', ("needs",)),
    "a second view is asked for that no one declared": (
        "Clip",
        """
def __init__(self, config, facts):
    super().__init__(config, facts)
    self.extra_views = 1
""",
        ("needs",),
    ),
    "a number is monitored that is not there": ("Clip", 'monitored = "gap"', ("reports",)),
    "a diagnostic that cannot be drawn": (
        "Clip",
        """
def diagnostics(self, z, observed):
    return (Diagnostic("weights", "weights", "w", {"all": z["image"]}),)
""",
        ("reports",),
    ),
}


def outcomes(subject: Subject, pool: RankPool, names: tuple[str, ...]) -> dict[str, Result]:
    chosen = tuple(check for check in CHECKS if check.name in names)
    return {result.check: result for result in run_checks(subject, pool, chosen)}


@pytest.mark.promise("broken adapters fail the checks that are meant for them")
@pytest.mark.parametrize("what", MUTATIONS)
def test_is_caught(what: str, mutant: Mutant, pool: RankPool) -> None:
    base, body, checks = MUTATIONS[what]
    results = outcomes(mutant(base, body), pool, checks)
    assert {name: results[name].outcome for name in checks} == dict.fromkeys(checks, "failed")
    assert not [results[name].reason for name in checks if "Error" in results[name].reason], "failed for another reason"


def test_a_subclass_that_changes_nothing_passes(mutant: Mutant, pool: RankPool) -> None:
    """That mutants are caught says something because this one is not; test_methods.py examines the other bases."""
    caught = {name for _, _, checks in MUTATIONS.values() for name in checks} - {"identities"}
    results = outcomes(mutant("Sogclr", "pass"), pool, tuple(caught))
    assert not [result for result in results.values() if result.outcome == "failed"]


def test_a_dropped_detach_is_caught_by_known_values(monkeypatch: pytest.MonkeyPatch, pool: RankPool) -> None:
    draw, loss = Sogclr.draw, Sogclr.loss
    assert outcomes(Subject("sogclr"), pool, ("oracles",))["oracles"].outcome == "passed"
    # The weights are made in the loss now, where the embeddings carry a gradient.
    monkeypatch.setattr(Sogclr, "draw", lambda *given: given[2])
    monkeypatch.setattr(Sogclr, "loss", lambda self, z, drawn, tile: loss(self, z, draw(self, z, drawn, tile), tile))
    results = outcomes(Subject("sogclr"), pool, ("oracles", "gradient"))
    assert results["gradient"].outcome == "passed", "the gradient is that of the value"
    assert results["oracles"].outcome == "failed"
    assert "gradient of image" in results["oracles"].reason


#: What is broken -> (method, function of its class, a part of that function, the mutant's)
OF_ANOTHER_STRUCTURE = {
    "own mixed points for own partners": (
        "m2mix",
        "loss",
        "logits.scatter(1, own[:, None], positive * cosines[anchors, None])",
        "logits",
    ),
    "texts get the images' targets": ("otter", "observe", "across.T", "across"),
    "a teacher that is no average": ("otter", "side_decay", "(1 + updates) / (10 + updates)", "0.0"),
    "tokens counted as often as a caption has them": ("superclip", "observe", "tokens[:, 1:] != tokens[:, :-1]", "1"),
    "a detach too many": ("cream", "_shares", "shares.detach() if self.config.detach else shares", "shares.detach()"),
    "labels scattered to wrong rows": ("bicro", "labels", "label[best] = 1", "label[: len(best)] = 1"),
    "own partners among the new ones": ("l2rm", "plan", "fill_diagonal_(False)", "fill_diagonal_(True)"),
    "prototypes of the own modality": ("pau", "_certainty", 'f"{other}_prototypes"', 'f"{rows}_prototypes"'),
    "a detach too few": ("amorlip", "loss", 'observed[f"read_{one}"]', "z[one]"),
}


@pytest.mark.parametrize("what", OF_ANOTHER_STRUCTURE)
def test_another_structure_is_caught_by_known_values(
    what: str, monkeypatch: pytest.MonkeyPatch, pool: RankPool
) -> None:
    name, function, part, other = OF_ANOTHER_STRUCTURE[what]
    kind = Subject(name).kind
    source, broken = inspect.getsource(getattr(kind, function)), dict(vars(sys.modules[kind.__module__]))
    assert source.count(part) == 1
    exec(textwrap.dedent(source).replace(part, other), broken)
    monkeypatch.setattr(kind, function, broken[function])
    result = outcomes(Subject(name), pool, ("oracles",))["oracles"]
    assert result.outcome == "failed"
    assert "Error" not in result.reason, "failed for another reason"


@pytest.mark.parametrize(
    ("module", "name", "value"), [(gsc, "BATCH", 100), (decl_evidential, "PAPER_BATCH", 100), (roclip, "CYCLES", 10)]
)
def test_a_constant_that_only_defaults_use_is_compared(
    module: Any, name: str, value: int, monkeypatch: pytest.MonkeyPatch, pool: RankPool
) -> None:
    subject = Subject(module.__name__.removeprefix("methods."))
    assert outcomes(subject, pool, ("oracles",))["oracles"].outcome == "passed"
    monkeypatch.setattr(module, name, value)
    assert outcomes(subject, pool, ("oracles",))["oracles"].outcome == "failed"


def test_every_case_of_a_method_is_compared(monkeypatch: pytest.MonkeyPatch, pool: RankPool) -> None:
    half = Clip.loss
    monkeypatch.setattr(Clip, "loss", lambda *given: {name: x / 2 for name, x in half(*given).items()})
    result = outcomes(Subject("clip"), pool, ("oracles",))["oracles"]
    assert result.outcome == "failed"
    assert oracles.of_other_code("clip")[0].path in result.reason


@pytest.mark.parametrize(("check", "outcome"), [("scalars", "expected"), ("tiles", "failed"), ("card", "failed")])
def test_known_failures_are_strict(check: str, outcome: str, mutant: Mutant, pool: RankPool) -> None:
    body = 'known_failures = {"scalars": "free as in the code", "tiles": "slow", "tyles": ""}\n'
    result = outcomes(mutant("Clip", body + "def after_step(self, clock):\n    pass"), pool, (check,))[check]
    assert result.outcome == outcome
    reasons = {"scalars": "free as in the code", "tiles": "passes, but is declared to fail", "card": "tyles"}
    assert reasons[check] in result.reason


@pytest.mark.parametrize(("preset", "outcome"), [("official", "passed"), ("mine", "failed")])
def test_a_shipped_method_has_the_preset_of_its_paper_or_of_its_code(
    preset: str, outcome: str, monkeypatch: pytest.MonkeyPatch, pool: RankPool
) -> None:
    monkeypatch.setattr(Clip, "presets", {preset: {}})
    assert outcomes(Subject("clip"), pool, ("card",))["card"].outcome == outcome


def test_ranks_start_again_after_one_failed(mutant: Mutant, pool: RankPool) -> None:
    body = """
def after_step(self, clock):
    if dist.is_initialized() and dist.get_rank() == 1:
        raise OverflowError("only here")
"""
    result = outcomes(mutant("Clip", body), pool, ("ranks",))["ranks"]
    assert result.outcome == "failed"
    assert "OverflowError: only here" in result.reason
    assert outcomes(Subject("clip"), pool, ("ranks",))["ranks"].outcome == "passed"
