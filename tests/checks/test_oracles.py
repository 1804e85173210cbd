"""Every stored number is compared with an adapter's, or is listed as not offered, with the reason."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bench.checks import oracles

from ..evaluation import official  # noqa: F401  its cases

#: Inputs and settings of cases, as regular expressions over paths; what a case gives stands beside them.
GIVEN = (
    r"((noisy_correspondence|finetuning)/)?inputs/.*",
    r"poisoning/(inputs|traces)/.*",
    r"(fastclip|drrho)/traces/\d+/(gamma|gamma_decay_epochs|rho|eps|log_scale|lr_tau|betas|adam_eps)",
    r"fastclip/gamma/gamma(_decay_epochs)?",
    r"drrho/accumulation_path/(eps|log_scale)",
    r"amorlip/cases/\d+/(log_scale|own_weight|rho|beta|(networks|previous)/.*)",
    r"amorlip/memory/(max|decay_epochs|epochs)",
    r"(cleanclip|safeclip)/cases/\d+/(log_scale|clip_weight|inmodal_weight|mask)",
    r"(roclip|safeclip)/traces/\d+/(log_scale|size|every|init/.*)",
    r"safeclip/split/\d+/(gmm|share)",
    r"safeclip/official_schedule/hyper/.*",
    r"clip/cases/\d+/(logit_scale|temperature)",
    r"siglip/cases/\d+/(log_t|t|bias)",
    r"dcl/cases/\d+/(tau_plus|temperature)",
    r"cyclip/cases/\d+/(lambda1|lambda2|temperature)",
    r"decomposable_cl/cases/./logit_scale",
    r"rince/(bimodal|official_\w+)/\d+/(q|lam|temperature)",
    r"rince/unbounded_with_learnable_scale/(lam|rows/\d+/logit_scale)",
    r"sogclr/traces/\d+/(gamma|temperature)",
    r"pcmepp/cases/\d+/(vib_beta|smoothness_alpha|shift|negative_scale)",
    r"pcmepp/mixed_targets_A/(lam|label_smoothing|vib_beta|smoothness_alpha)",
    r"rcl/cases/\d+/(temperature|q|floor)",
    r"decl_evidential/cases/\d+/(temperature|lambda1|kl_weight|margin|out/\w/(clean|negatives|hinge_weight))",
    r"decl_evidential/(evidence|traces)/\d+/(temperature|lambda1|hinge_weight|kl_weight|margin|warm_epochs)",
    r"decl_evidential/traces/\d+/steps/\d+/(epoch|ids)",
    r"psd/cases/\d+/(logit_scale|sharpen|out/\w/soft_rows)",
    r"osa/cases/\d+/(logit_scale|shift|out/\w/estimator_\w+/\d+)",
    r"prolip/loss/(scale|bias|cases/\d+/cfg/\w+)",
    r"mixture/cases/\d+/values",
    r"gsc/cases/\d+/(temperature|structure_weight|intra_scale)",
    r"gsc/traces/\d+/(temperature|structure_weight|intra_scale|beta)",
    r"ncr/cases/\d+/(margin|out/./(targets|clean_probability|prediction))",
    r"ncr/parts/\d+/margin",
    r"ncr/split/\d+/clean_probability",
    r"ncr/traces/\d+/(margin|warm_epochs|noisy_rows_from_epoch)",
    r"filters/(inputs/.*|cases/\d+/(batch|temperature|repeats|permutations/\d+|proxy/\d+|fractions))",
    r"m2mix/cases/\d+/(lam|weight|temperature|mix_temperature|m_tau|epoch)",
    r"otter/cases/\d+/(alpha|sinkhorn_\w+|\w+_coef|teacher_scale|rho_\w+|teacher_(image|text)/\d+)",
    r"otter/ema/(decay|student/\d+)",
    r"pau/cases/\d+/(tau|\w+_weight|rho|\w+_prototypes/\d+)",
    r"superclip/traces/\d+/(temperature|vocabulary|width|length|head/.*|steps/\d+/(tokens|pooled)/.*)",
    r"bicro/(cases|labels|traces)/\d+/(margin|floor|warm_share|labels|noisy_(image|text)/\d+|kappa|warm|noisy_from)",
    r"bicro/beta_mixture/\d+/scaled_loss",
    r"bicro/traces/\d+/steps/\d+/(epoch|ids)",
    r"cream/(cases|traces)/\d+/(temperature|filter|labels|warm|hard_from|noisy_from)",
    r"cream/split/row_loss",
    r"cream/traces/\d+/steps/\d+/(epoch|ids)",
    r"l2rm/(cases|traces)/\d+/(temperature|reg|mass|margin|noise_ratio|cost_bias|cost_weight/\d+|omega|warm)",
    r"l2rm/traces/\d+/steps/\d+/(epoch|ids)",
    r"crcl/cases/\d+/(temperature|complementary_weight|floor)",
    r"crcl/traces/\d+/(temperature|alpha|warm_epochs|stage|start_labels)",
)


#: The methods and filters of the files of fine-tuning, whose numbers are found one by one among those compared.
FINE_TUNING = ("bicro", "cream", "filters", "l2rm", "m2mix", "otter", "pau", "superclip")
#: Numbers of theirs that are compared as part of another one, or as flags of rows.
IN_ANOTHER_FORM = (
    r"bicro/(labels/\d+/anchors|traces/\d+/steps/\d+/(selected|anchors))",
    r"filters/cases/\d+/out/\w/half_normaliser_(image|text)",
    r"l2rm/(cases/\d+/out/\w/iterations|traces/\d+/steps/\d+/rematch_loss)",
)


def leaves(value: Any, path: str = "") -> list[str]:
    """Paths of all numbers; a list of numbers is one leaf."""
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in leaves(inner, f"{path}/{key}" if path else key)]
    if isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        return [leaf for place, inner in enumerate(value) for leaf in leaves(inner, f"{path}/{place}")]
    number = isinstance(value, int | float | list) and not isinstance(value, bool)
    return [path] if number and value != [] else []


def at(path: str) -> Any:
    """What stands there."""
    value: Any = oracles.values()
    for part in path.split("/"):
        value = value[int(part) if isinstance(value, list) else part]
    return value


def parts(value: Any) -> list[Any]:
    """A value and, if it is a list, all that it holds."""
    return [value, *(part for inner in value for part in parts(inner))] if isinstance(value, list) else [value]


def below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


@pytest.fixture(scope="module")
def compared() -> list[str]:
    return [case.path for cases in oracles._all().values() for case in cases]


@pytest.fixture(scope="module")
def results() -> list[str]:
    return [path for path in leaves(oracles.values()) if not any(re.fullmatch(given, path) for given in GIVEN)]


def test_every_pattern_of_what_is_given_is_used() -> None:
    everything = leaves(oracles.values())
    assert [given for given in GIVEN if not any(re.fullmatch(given, path) for path in everything)] == []


def test_every_number_is_compared_or_listed(compared: list[str], results: list[str]) -> None:
    covered = [*compared, *oracles.not_offered()]
    assert [path for path in results if not any(below(path, prefix) for prefix in covered)] == []


def test_every_number_of_fine_tuning_is_compared_itself(results: list[str]) -> None:
    """A number is found as the object that was read: a case may leave out what stands below its path."""
    expected = [known.expected for name in FINE_TUNING for case in oracles.cases(name) for known in case.compare()]
    compared = {id(part) for one in expected for part in parts(one)}
    named = (*IN_ANOTHER_FORM, *map(re.escape, oracles.not_offered()))
    left = []
    for path in results:
        value = at(path)
        one_by_one = isinstance(value, list) and all(id(x) in compared for x in value if x is not None)
        if path.partition("/")[0] in FINE_TUNING and id(value) not in compared and not one_by_one:
            left.append(path)
    assert [path for path in left if not any(re.fullmatch(name, path) for name in named)] == []
    assert all(any(re.fullmatch(form, path) for path in left) for form in IN_ANOTHER_FORM), "a pattern without use"


def test_every_case_stands_for_something(compared: list[str]) -> None:
    for path in compared:
        at(path)
    assert sorted(set(compared)) == sorted(compared), "a place is compared once"


def test_what_is_not_offered_is_nowhere_compared(compared: list[str], results: list[str]) -> None:
    for prefix, reason in oracles.not_offered().items():
        assert reason
        assert any(below(path, prefix) for path in results), f"{prefix}: there is no such number"
        assert not [path for path in compared if below(path, prefix) or below(prefix, path)], prefix
