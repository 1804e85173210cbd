"""The layouts of the papers' tables, as data."""

from __future__ import annotations

from reports.papers.layout import Layout, Own, Paper
from reports.papers.layouts_prolip import PROLIP

_FOURTEEN = {
    "Caltech101": "caltech101",
    "SVHN": "svhn",
    "STL10": "stl10",
    "CIFAR10": "cifar10",
    "CIFAR100": "cifar100",
    "DTD": "dtd",
    "FGVCAircraft": "fgvc_aircraft",
    "OxfordPets": "pets",
    "SST2": "renderedsst2",
    "Food101": "food101",
    "GTSRB": "gtsrb",
    "StanfordCars": "cars",
    "Flowers102": "flowers",
    "ImageNet1K": "imagenet1k",
}
_SHIFTS = {
    "ImageNetV2": "imagenetv2",
    "ImageNetSketch": "imagenet_sketch",
    "ImageNet-A": "imagenet-a",
    "ImageNet-R": "imagenet-r",
}
_ZERO_SHOT = ("zero_shot", "shift")
_TOPS = {"zero-shot top1": Own(_ZERO_SHOT, "top1"), "zero-shot top5": Own(_ZERO_SHOT, "top5")}
#: the solver of both anonymous papers is not stated; CyCLIP's is that of the code they descend from
_CYCLIP_PROBE = {"linear-probe top1": Own(("adamw_probe",), "accuracy")}
_SOLVER = (
    "The paper does not state the probe's solver; ours is that of CyCLIP's code (AdamW), on whose line of work the "
    "paper builds."
)

BAYES = Paper(
    name="bayes_weighted_cl",
    title="When Contrastive Learning Meets Bayesian Modeling",
    layouts=(
        Layout("1", "Zero-shot classification on ImageNet-1K", ("method",), ("metric",)),
        Layout("2", "Zero-shot classification under distribution shift", ("method",), ("metric",), heads=("heading",)),
        Layout("3", "Linear probe", ("method",), ("heading",), notes=(_SOLVER,)),
        Layout("4", "Parameters of the prior, zero-shot ImageNet-1K", ("method",), ("metric",), heads=("setting",)),
    ),
    words={
        "zero-shot top1": "Top1",
        "zero-shot top5": "Top5",
        **{f"a_plus=5; a_minus={a}": f"a- = {a}" for a in (1, 5, 10, 20)},
        **{f"OURS a_plus=5 a_minus={a}": "OURS" for a in (1, 5, 10, 20)},
    },
    datasets={**_FOURTEEN, **_SHIFTS},
    metrics={**_TOPS, **_CYCLIP_PROBE},
    averages={"Average": ()},
    radar=("1", "2", "3"),
)

LABELS = Paper(
    name="label_augmentation",
    title="When Noises Help: Stochastic Label Augmentations",
    layouts=(
        Layout("1", "Zero-shot classification on ImageNet-1K", ("method", "setting"), ("metric",), heads=("backbone",)),
        Layout("2", "Rates of label noise, ImageNet-1K, ResNet-50", ("method",), ("metric",), heads=("setting",)),
        Layout(
            "3",
            "Zero-shot classification under distribution shift, ResNet-50",
            ("method", "setting"),
            ("metric",),
            heads=("heading",),
        ),
        Layout("4", "Linear probe, ResNet-50", ("method", "setting"), ("heading",), notes=(_SOLVER,)),
    ),
    words={
        "zero-shot top1": "Top1",
        "zero-shot top5": "Top5",
        "ResNet-50 + BERT (OpenCLIP)": "ResNet-50",
        "ResNet-50 + BERT": "ResNet-50",
        "ViT-B/16 + BERT (OpenCLIP)": "ViT-B/16",
        "ViT-B/32 + BERT (OpenCLIP)": "ViT-B/32",
        **{f"gamma={rate}": f"γ = {rate}" for rate in ("0.1", "0.3", "0.5", "0.7", "0.9")},
    },
    datasets={**_FOURTEEN, **_SHIFTS},
    metrics={**_TOPS, **_CYCLIP_PROBE},
    averages={"Average": ()},
)

_NUCLR_NOTES = (
    "MSCOCO and Flickr30k: mean of the two R@1, images squashed to 256 px. CIFAR100 and ImageNet1k: the paper "
    "normalises pixels by each data set's own statistics, not by those of training. Both towers start pretrained. "
    "Settings were tuned on validation splits of MSCOCO and Flickr30k; which epoch is reported is not stated.",
)

NUCLR = Paper(
    name="nuclr",
    title="On Discriminative Probabilistic Modeling for Self-Supervised Representation Learning",
    layouts=(
        Layout("1", "NUCLR and baselines", ("method",), ("heading",), ("pretrain",), notes=_NUCLR_NOTES),
        Layout("2", "NUCLR and iSogCLR", ("method",), ("heading",), ("pretrain",), notes=_NUCLR_NOTES),
        Layout("3", "Where the popularities start", ("method",), ("heading",), ("pretrain",), notes=_NUCLR_NOTES),
    ),
    words={"NUCLR zeta0=0 (inferred)": "NUCLR (ζ = 0)", "NUCLR zeta0=-0.05 (inferred)": "NUCLR (ζ = -0.05)"},
    datasets={
        "MSCOCO": "mscoco_captions",
        "Flickr30k": "flickr30k",
        "CIFAR100": "cifar100",
        "ImageNet1k": "imagenet1k",
    },
    metrics={"R@1 mean of i2t,t2i": Own(("retrieval",), "mean_r1"), **_TOPS},
    averages={"Mean": ()},
)

_EPOCH = "One run each. The README evaluates epoch 5 of 10; whether the printed numbers are of the last is not stated."

NCU = Paper(
    name="ncu",
    title="Unlearning the Noisy Correspondence Makes CLIP More Robust",
    layouts=(
        Layout(
            "1",
            "Zero-shot classification",
            ("method",),
            ("heading",),
            ("backbone", "pretrain"),
            notes=(_EPOCH, "The printed Average is over the 15 data sets before it, without ImageNet."),
        ),
        Layout("2", "Zero-shot retrieval", ("method",), ("metric",), ("pretrain", "backbone"), ("heading",), (_EPOCH,)),
        Layout("3", "Linear probe", ("method",), ("heading",), ("pretrain", "backbone"), notes=(_EPOCH,)),
        Layout(
            "4",
            "Unlearning and other remedies, zero-shot ImageNet-1K",
            ("method",),
            ("heading",),
            ("pretrain", "backbone"),
            notes=(_EPOCH, "SoftCLIP was trained from scratch, the others from the CLIP checkpoint of the same row."),
        ),
        Layout("5", "Ablation, zero-shot ImageNet-1K", ("method",), ("backbone",), notes=(_EPOCH,)),
    ),
    words={
        "i2t R@1": "I→T R@1",
        "i2t R@5": "I→T R@5",
        "i2t R@10": "I→T R@10",
        "t2i R@1": "T→I R@1",
        "t2i R@5": "T→I R@5",
        "t2i R@10": "T→I R@10",
        "average of six": "Average",
    },
    datasets={
        **_FOURTEEN,
        "CIFAR-10": "cifar10",
        "CIFAR-100": "cifar100",
        "Aircraft": "fgvc_aircraft",
        "RESISC45": "resisc45",
        "SUN397": "sun397",
        "EuroSAT": "eurosat",
        "ImageNet": "imagenet1k",
        "Flickr30K 1K test": "flickr30k",
        "MSCOCO 5K test": "mscoco_captions",
    },
    metrics={
        **_TOPS,
        "linear-probe top1": Own(("linear_probe",), "accuracy"),
        **{f"{way} R@{k}": Own(("retrieval",), f"{way}_r{k}") for way in ("i2t", "t2i") for k in (1, 5, 10)},
        "average of six": Own(("retrieval",), "mean_recall"),
    },
    averages={"Average": ("ImageNet1K",)},
)

PAPERS = {paper.name: paper for paper in (BAYES, LABELS, NUCLR, NCU, PROLIP)}
