"""The families of evaluation tasks that come with the package, one entry each, in order of reading."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.catalogue.families import random_guess
from bench.catalogue.families.family import PackageTask, TaskFamily

_RECALLS = {
    **{f"{way}_r{k}": f"{label} R@{k}" for way, label in (("i2t", "I→T"), ("t2i", "T→I")) for k in (1, 5, 10)},
    "mean_recall": "mean recall",
    "mean_r1": "mean R@1",
    "rsum": "rSum",
}
_PROMPTS = {
    "all": "all",
    "single": "single",
    "filtered": "below mean σ²",
    "half": "surer half",
    "bprw_0": "BPRW K=0",
    "bprw_5": "BPRW K=5",
    "bprw_9": "BPRW K=9",
}
_ATTACKS = {"attack_success": "attack", "without_trigger": "no trigger", "clean_accuracy": "clean top-1"}


def _emoji(*tasks: PackageTask) -> Mapping[str, tuple[PackageTask, ...]]:
    """Return tasks on the emoji, and the same ones on each half of its concepts."""
    names = ("emoji", "emoji-a", "emoji-b")
    return {name: tuple(one.moved("emoji", name) for one in tasks) for name in names}


_PROBES = _emoji(
    PackageTask("emoji/iid", "subgroup", "emoji/train", "emoji/validation"),
    PackageTask("emoji/iid", "style", "emoji/train", "emoji/validation"),
    PackageTask("digits/test", "digit", "digits/train"),
)
_ZERO_SHOT = partial(
    TaskFamily,
    metrics={"top1": "top-1", "top5": "top-5"},
    main="top1",
    measure="bench.evaluation.measures:zero_shot",
    chance=random_guess.of_ranked_classes,
    texts="prompts",
)
_PROBE = partial(
    TaskFamily,
    metrics={"accuracy": "accuracy"},
    main="accuracy",
    chance=random_guess.of_classes("accuracy"),
    embedded=_PROBES,
    learns=True,
    averaged=True,
)
_SHIFTED = ("openmoji", "openmoji-black", "fluent-high-contrast", "emojione-monotone", "near")
_UNTESTED = "of concepts that the test set does not hold"

SHIPPED = (
    _ZERO_SHOT(
        name="zero_shot",
        title="Zero-shot classification",
        short="Zero-shot",
        text="An image gets the class whose text embedding, averaged over prompts, is nearest. No training on labels.",
        embedded=_emoji(
            *(PackageTask(f"emoji/{s}", label) for s in ("iid", "novel") for label in ("concept", "subgroup"))
        ),
        along=True,
    ),
    TaskFamily(
        name="class_ranking",
        title="Rank and probability of the right class",
        short="Class rank",
        text="Zero-shot with less chance in it: one over the place of the right class among all, and the geometric "
        "mean of its probability after one temperature, fitted on validation.",
        metrics={"mrr": "MRR", "likelihood": "probability"},
        main="mrr",
        measure="bench.evaluation.measures:class_ranking",
        chance=random_guess.of_places,
        embedded=_emoji(PackageTask("emoji/iid", "concept", validation="emoji/validation")),
        texts="prompts",
    ),
    _ZERO_SHOT(
        name="shift",
        title="Zero-shot classification under distribution shift",
        short="Shift",
        text="The same classes and prompts, but images that were made in another way than any training image.",
        embedded=_emoji(*(PackageTask(f"emoji/{style}", "concept") for style in _SHIFTED)),
        averaged=True,
    ),
    _PROBE(
        name="linear_probe",
        title="Linear probe",
        short="Linear probe",
        text="A logistic regression on frozen image features before the projection; regularisation chosen on "
        "validation.",
        measure="bench.evaluation.measures:linear_probe",
        reads="pooled",
    ),
    _PROBE(
        name="adamw_probe",
        title="Linear probe trained with AdamW",
        short="AdamW probe",
        text="One linear layer on frozen image embeddings, trained as CyCLIP's code does: another protocol, other "
        "numbers.",
        measure="bench.evaluation.measures:adamw_accuracy",
        reads="projected",
    ),
    TaskFamily(
        name="retrieval",
        title="Image-text retrieval",
        short="Retrieval",
        text="Share of queries with a right answer among the first 1, 5 or 10. I→T: find a caption of an image; T→I: "
        "find the image of a caption. rSum is the sum of the six.",
        metrics=_RECALLS,
        main="mean_recall",
        measure="bench.evaluation.measures:retrieval",
        chance=random_guess.of_captions,
        kinds=("retrieval", "association"),
        embedded=_emoji(PackageTask("emoji/iid"), PackageTask("emoji/openmoji")),
        main_of_kind={"association": "jaccard_10_12"},
        texts="captions",
    ),
    TaskFamily(
        name="hierarchy",
        title="Captions from general to special",
        short="Hierarchy",
        text="On the way from an image's nearest caption to a root, which of its captions are met: to the empty text "
        "(score cosine), or to a root that variances choose (score csd).",
        metrics={"recall": "recall", "precision": "precision", "r1_root": "root R@1", "any": "any"},
        main="recall",
        measure="bench.evaluation.probabilistic.hierarchy:along_hierarchy",
        kinds=("hierarchy",),
        embedded={"emoji": (PackageTask("emoji/iid"),)},
        texts="captions",
    ),
    TaskFamily(
        name="prompts",
        title="Choice and weighting of prompts",
        short="Prompts",
        text="Zero-shot top-1 with all prompts alike or a single one; with variances also with the surer prompts, and "
        "with prompts weighted by how well they explain K labelled training images a class (BPRW).",
        metrics=_PROMPTS,
        main="all",
        measure="bench.evaluation.probabilistic.prompts:prompt_choices",
        chance=random_guess.of_classes(*_PROMPTS),
        embedded={"emoji": (PackageTask("emoji/iid", "group", "emoji/train"),)},
        learns=True,
        texts="prompts",
        of_variances=frozenset({"filtered", "half", "bprw_0", "bprw_5", "bprw_9"}),
    ),
    TaskFamily(
        name="attack_success",
        title="Success of the poison",
        short="Attack",
        text="With the poison's trigger in every test image: the share of images of other classes that get the "
        "target class (lower is better), the same share without the trigger, and the accuracy without it. Of a "
        "targeted attack: the share of the chosen images that get their wrong class, and the accuracy on the others.",
        metrics=_ATTACKS,
        main="attack_success",
        measure="bench.evaluation.noise.attack:attack_success",
        chance=random_guess.of_classes(*_ATTACKS),
        embedded=_emoji(PackageTask("emoji/iid", "concept")),
        on_poison=True,
        texts="prompts",
    ),
    TaskFamily(
        name="noise_detection",
        title="Detection of corrupted training pairs",
        short="Noise found",
        text="Every training pair is scored by the method's own confidence; corrupted pairs should get the lower "
        "scores.",
        metrics={
            "auroc": "AUROC",
            "average_precision": "AP",
            "kept_precision": "clean of kept",
            "kept_recall": "kept of clean",
        },
        main="auroc",
        measure="bench.evaluation.measures:noise_detection",
        chance=random_guess.of_two_kinds,
        on_training_pairs=True,
        of_noise=frozenset({"auroc", "average_precision", "kept_precision", "kept_recall"}),
        texts="captions",
    ),
    TaskFamily(
        name="memorisation",
        title="Memorisation of training pairs",
        short="Memorised",
        text="Of up to 8,192 training pairs: the share of corrupted pairs whose given, wrong caption is ranked above "
        "1,023 fixed distractors (memorised, lower is better), the share of them whose true caption is ranked above "
        "the given one (corrected), the share of clean pairs whose caption is ranked first (learned), and the AUROC of "
        "finding the corrupted pairs.",
        metrics={"memorised": "memorised", "corrected": "corrected", "learned": "learned", "auroc": "AUROC"},
        main="memorised",
        measure="bench.evaluation.noise.memorisation:memorisation",
        chance=random_guess.of_distractors,
        on_training_pairs=True,
        of_noise=frozenset({"memorised", "corrected", "auroc"}),
        along=True,
        texts="captions",
    ),
    *(
        TaskFamily(
            name=name,
            title=title,
            short=title.partition(",")[0],
            text=f"Retrieval on {text}.",
            metrics=_RECALLS,
            main="",
            measure="bench.evaluation.measures:retrieval",
            chance=random_guess.of_captions,
            kinds=("retrieval", "association"),
            embedded=_emoji(PackageTask(pairs)),
            split="validation",
            texts="captions",
        )
        for name, title, text, pairs in (
            ("validation", "Validation", "validation pairs, by which tuning chooses", "emoji/validation"),
            (
                "noisy_validation",
                "Noisy validation, by which `select` chooses",
                f"validation pairs with captions as the run's noise makes them, {_UNTESTED}",
                "emoji/selection",
            ),
            (
                "clean_validation",
                "Clean validation, by which `select` chooses",
                f"clean validation pairs {_UNTESTED}",
                "emoji/selection",
            ),
        )
    ),
)
