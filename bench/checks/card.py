"""Checks of what a method says about itself: its card, its hyper-parameters, known values, identities."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bench.adapters import hyperparameters, oracle_file, registry
from bench.adapters.oracle_file import Numbers, OracleCase, OracleStep
from bench.checks import lab, oracles
from bench.checks.oracles import Case, KnownValue
from bench.checks.subject import BATCH, Failed, Skipped, Subject, Variant, constants, loss_and_gradients, same, total_of
from bench.errors import UserError, nearest, one_line
from bench.training import side_towers
from methods.protocol import STARTS, Batch, Choice, Clock, Facts, Identity, Linear, Log, Method, Tensors

MAX_SPACE = 4  #: most hyper-parameters of a space
FIDELITIES = ("official-checked", "formula-checked", "derived", "reconstructed")


def card(subject: Subject, checks: Sequence[str]) -> None:
    """The card is complete, presets and points of the space can be made, `known_failures` names checks.

    A user's file may lack a citation and a space.
    """
    kind, about = subject.kind, subject.kind.about
    wanted = ["title", "summary", "paper", "equations", "state"]
    empty = [field for field in wanted if not getattr(about, field)]
    if empty:
        raise Failed(f"about lacks {', '.join(empty)}")
    if about.fidelity not in FIDELITIES:
        raise Failed(f"about.fidelity is {about.fidelity!r}, should be one of {', '.join(FIDELITIES)}")
    if not about.bibtex.startswith("@") and (about.bibtex or subject.plugin is None):
        raise Failed('about.bibtex should start with "@"')
    if not {"paper", "official"} & kind.presets.keys() and subject.plugin is None:
        raise Failed('presets lack "paper", or "official" where only code could be read')
    for preset, values in kind.presets.items():
        try:
            kind.Config(**values)
        except ValueError as error:
            raise Failed(f"preset {preset!r}: {error}") from error
    if wrong := space_faults(kind, optional=subject.plugin is not None):
        raise Failed(f"space: {wrong}")
    if not isinstance(kind(kind.Config(), Facts(rows=8, batch=8, dim=4, seed=0)), Method):
        raise Failed("is not a Method (see methods/protocol.py)")
    unknown = [name for name in kind.known_failures if name not in checks]
    if unknown:
        raise Failed(f"known_failures names no check: {', '.join(unknown)}")


def space_faults(kind: type[Method], optional: bool = False) -> str:
    """Return what is wrong with the space of a method, "" if nothing is; `optional`: it may have none."""
    space, fields = kind.space, [field.name for field in dataclasses.fields(kind.Config)]
    if not space:
        return "" if optional else "is empty"
    if len(space) > MAX_SPACE:
        return f"{len(space)} hyper-parameters, should be at most {MAX_SPACE}"
    for name, one in space.items():
        if name not in fields:
            return f"{name!r} is not a field of Config{nearest(name, fields)}"
        if not isinstance(one, Linear | Choice):
            return f"{name}: {one!r} should be Log(low, high), Linear(low, high) or Choice((...))"
        if isinstance(one, Linear) and not (0 if isinstance(one, Log) else -math.inf) < one.low < one.high < math.inf:
            return f"{name}: {one!r} should have low < high, both positive if it is a Log"
    taken_over = kind.reference is not None and kind.starts_from_reference  # the reference's temperature, trained on
    lacking = [name for name in fields if name in STARTS and name not in space and not taken_over]
    if lacking:
        return f"lacks {lacking[0]}, the temperature or its start"
    for title, values in (("the default", {}), ("the paper's value", kind.presets.get("paper", {}))):
        config = kind.Config(**values)
        for name, one in space.items():
            if not 0 <= one.place(value := getattr(config, name)) < math.inf or one.place(value) > 1:
                return f"{name}: {title} {value!r} lies outside {one!r}"
    for corner in itertools.product((0.0, 0.999), repeat=len(space)):
        try:
            kind.Config(**{name: space[name].at(place) for name, place in zip(space, corner, strict=True)})
        except ValueError as error:
            return f"a point of it is refused: {error}"
    return ""


def refusals(subject: Subject) -> None:
    """Config refuses an unknown word and a number that is NaN or infinite, and names the field."""
    config: Any = subject.kind.Config
    bad: dict[type, Any] = {str: "nonsense", float: math.nan}
    tried = 0
    for field in dataclasses.fields(config):
        value = bad.get(type(getattr(config(), field.name)))
        if value is None:
            continue
        tried += 1
        try:
            config(**{field.name: value})
        except ValueError as error:
            if f"Config.{field.name} = " not in str(error):
                raise Failed(f"{field.name} = {value!r} is refused without naming it: {error}") from error
        else:
            raise Failed(f"{field.name} = {value!r} is not refused (see methods.base.check)")
    if not tried:
        raise Skipped("has no hyper-parameter that is a number or a word")


def known_values(subject: Subject) -> None:
    """Values of other implementations, each at its tolerance; a class of fidelity that rests on values has some."""
    source = registry.method_source(subject.name)
    file = oracle_file.oracle_path(source.path)
    cases = list(oracles.cases(subject.name)) if source.shipped else []
    known = source.shipped and oracles.of_other_code(subject.name)
    lacking = "" if known else oracle_file.missing_oracles(file, subject.kind.about.fidelity)
    if lacking:
        raise Failed(lacking)
    cases += oracle_cases(subject.name, file)
    if not cases:
        raise Skipped("no oracle values")
    for case in cases:
        for one in _compared(case):
            try:
                lab.assert_close(one.actual, one.expected, one.rtol, one.atol)
            except AssertionError as error:
                raise Failed(f"{case.path}: {one.what}: {one_line(error, 300)}") from error


def _compared(case: Case) -> Iterator[KnownValue]:
    """Yield the comparisons of a case. An error of the adapter becomes Failed and names the case."""
    try:
        yield from case.compare()
    except UserError:
        raise
    except Exception as error:
        message = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {one_line(error)}"
        raise Failed(f"{case.path}: {message}") from error


def identities(subject: Subject) -> None:
    """Declared identities hold: with some hyper-parameters the method equals another one, on any batch."""
    if not subject.kind.identities:
        raise Skipped("declares none")
    fields = [field.name for field in dataclasses.fields(subject.kind.Config)]
    for identity in subject.kind.identities:
        for key in identity.config:
            if key not in fields:
                raise Failed(f"identity {identity.claim!r}: {key!r} is not a field of Config{nearest(key, fields)}")
        names = subject.embedded(Variant(f"identity {identity.claim}", identity.config))[1]
        for rows, seed in ((6, 0), (BATCH, 1), (BATCH, 2)):
            draws = torch.Generator().manual_seed(seed)
            z = {name: _like(x, rows, draws) for name, x in names.items()}
            own, others = _two_sides(subject, identity, z, rows, seed)
            for what in ("gradient of image", "gradient of text", *([] if identity.gradient_only else ["loss"])):
                where = f"{identity.claim} ({rows} rows, seed {seed}): {what}"
                same(where, own[what], identity.factor * others[what], identity.rtol, floor=1e-3)


def _like(x: torch.Tensor, rows: int, draws: torch.Generator) -> torch.Tensor:
    if not x.is_floating_point():
        return x[:rows]
    values = torch.randn((rows, *x.shape[1:]), generator=draws, dtype=torch.float64)
    unit = bool(((x.flatten(1).norm(dim=1) - 1).abs() < 1e-3).all())
    return (normalize(values, dim=-1) if unit else values).requires_grad_()


def _two_sides(
    subject: Subject, identity: Identity, z: Tensors, rows: int, seed: int
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return loss and gradients of the method and of the other one, in fp64 and with exact scalars."""
    sides = []
    for kind, config, phase in (
        (subject.kind, identity.config, identity.phase),
        (registry.find_method(identity.equals), identity.other, ""),
    ):
        method = lab.build_adapter(kind, rows=BATCH, batch=rows, dim=z["image"].shape[1], seed=seed, **config)  # type: ignore[arg-type]
        towers = lab.TinyTowers()
        with torch.random.fork_rng(devices=[]):  # what it adds to towers is equal at equal seeds
            torch.manual_seed(1)
            side_towers.hold_reference(method, towers, None)
            method.prepare(towers)
        method.double()
        when = Clock(step=0, phase=phase or method.phases()[-1].name, progress=0.0, epoch=0)
        loss = total_of(method.loss(z, constants(method, z, when)[1], slice(0, rows)))
        sides.append(loss_and_gradients(method, loss, z))
    return sides[0], sides[1]


def oracle_cases(method: str, path: Path) -> Iterator[Case]:
    """Yield one case for each case of the file, none if there is no file. Raises UserError for an invalid file."""
    file = oracle_file.read_oracles(path)
    for case in file.cases if file else ():
        yield Case(f"{path.name}, case {case.name!r}", partial(_compare, method, path, case))


def _compare(name: str, path: Path, case: OracleCase) -> Iterator[KnownValue]:
    image = case.steps[0].inputs["image"]
    facts = Facts(rows=case.rows, batch=len(image), dim=len(image[0]), seed=case.seed)
    try:
        method = lab.in_fp64(lambda: hyperparameters.make_method(name, None, case.config, facts))
    except UserError as error:
        raise UserError(f"{path}: case {case.name!r}: {one_line(error)}") from error
    for number, step in enumerate(case.steps):
        after = case.steps[number + 1].epoch if number + 1 < len(case.steps) else step.epoch
        yield from _step(method, number, step, after, case.tolerance)


def _step(method: Any, number: int, step: OracleStep, next_epoch: int, tolerance: float) -> Iterator[KnownValue]:
    z = {key: torch.tensor(value, dtype=torch.float64, requires_grad=True) for key, value in step.inputs.items()}
    total = len(z["image"])
    clock = Clock(number, step.phase or method.phases()[-1].name, step.progress, step.epoch)
    with torch.no_grad():
        observed = method.observe(z, Batch(torch.tensor(step.ids or range(total)), clock))
    loss = lab.sum_of_tiles(method, z, observed)
    values = loss_and_gradients(method, loss, z)
    if step.loss is not None:
        yield _close(f"loss of step {number}", values["loss"], step.loss, tolerance)
    for key, value in step.gradient.items():
        what = f"gradient of {key}"
        yield _close(f"{what} of step {number}", _known(values, what), value, tolerance)
    method.after_step(clock)
    state = method.state_dict()
    for key, value in step.state.items():
        yield _close(f"{key} after step {number}", _known(state, key), value, tolerance)
    if next_epoch > step.epoch:
        method.end_epoch(step.epoch)


def _known(values: dict[str, Tensor], name: str) -> Tensor:
    if name not in values:
        raise Failed(f"there is no {name}{nearest(name, values)}")
    return values[name]


def _close(what: str, actual: Tensor, expected: Numbers, tolerance: float) -> KnownValue:
    largest = float(torch.as_tensor(expected, dtype=torch.float64).abs().max())
    return KnownValue(what, actual.double(), expected, tolerance, 1e-3 * tolerance * largest)
