"""Protocols of evaluation: the common one, and each paper's own where it differs. Needs no torch.

A number of one protocol is never compared with one of another: its name and version stand in every record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from bench.catalogue.architectures import CIFAR_CHANNELS, IMAGENET_CHANNELS, Channels

#: How a picture becomes a square, in open_clip's words (`bench.data.photo.Resize`).
Mode: TypeAlias = Literal["shortest", "longest", "squash"]

PROBES = (  # the 14 sets of linear probes, as papers on Bayesian weights and on label augmentations print them
    *("caltech101", "svhn", "stl10", "cifar10", "cifar100", "dtd", "fgvc_aircraft", "pets", "renderedsst2", "food101"),
    *("gtsrb", "cars", "flowers", "imagenet1k"),
)
SHIFTS = ("imagenetv2", "imagenet_sketch", "imagenet-a", "imagenet-r")
RETRIEVAL = ("mscoco_captions", "flickr30k")
NCU = (  # as NCU's table prints them, after ImageNet
    *("caltech101", "cifar10", "cifar100", "dtd", "fgvc_aircraft", "renderedsst2", "flowers", "food101", "gtsrb"),
    *("pets", "resisc45", "sun397", "eurosat", "cars", "stl10"),
)
DATACOMP_SHIFTS = ("imagenet-a", "imagenet-o", "imagenet-r", "imagenetv2", "imagenet_sketch", "objectnet")
DATACOMP_RETRIEVAL = ("flickr30k", "mscoco_captions", "winogavil")
DATACOMP = (  # the other zero-shot tasks of the suite's 38
    *("imagenet1k", "caltech101", "cifar10", "cifar100", "clevr_count_all", "clevr_closest_object_distance"),
    *("country211", "dtd", "eurosat", "fgvc_aircraft", "food101", "gtsrb", "kitti_closest_vehicle_distance", "mnist"),
    *("flowers", "pets", "voc2007", "pcam", "renderedsst2", "resisc45", "cars", "stl10", "sun397", "svhn"),
    *("iwildcam", "camelyon17", "fmow", "dollar_street", "geode"),
)
_COMMON = {
    "zero_shot": ("imagenet1k",),
    "class_ranking": ("imagenet1k",),
    "shift": SHIFTS,
    "linear_probe": PROBES,
    "adamw_probe": PROBES,
    "retrieval": RETRIEVAL,
    "validation": ("mscoco_captions",),
}


@dataclass(frozen=True)
class Protocol:
    """One way to evaluate. Anything it leaves open is done as in training, or as in `bench.evaluation.measures`."""

    name: str
    version: str  #: raise it when any number that is stored under it would change
    datasets: Mapping[str, tuple[str, ...]] = field(hash=False)  #: of a family of tasks, where the suite names none
    #: of images that captions belong to; None = as the model reads them, as those with classes always are
    retrieval_resize: Mode | None = None
    captions: int | None = 5  #: of an image, at most
    #: statistics that the pixels of classified and of retrieved images are normalised with; None = those of training
    class_channels: Channels | None = None
    retrieval_channels: Channels | None = None
    own_channels: Mapping[str, Channels] = field(default_factory=dict, hash=False)  #: of data sets by name
    main: bool = False  #: the DataComp suite's own metric of each data set as well, and under the name "main"

    @property
    def label(self) -> str:
        """Name and version, as records and keys have them; the common one came first and has its version alone."""
        return self.version if self.name == "common" else f"{self.name}-{self.version}"

    def channels(self, dataset: str, classified: bool) -> Channels | None:
        """Statistics that the pixels of a data set are normalised with; None = those of training."""
        return self.own_channels.get(dataset, self.class_channels if classified else self.retrieval_channels)


PROTOCOLS: Mapping[str, Protocol] = {
    one.name: one
    for one in (
        # CLIP's prompts for each data set, top-1 and top-5, L-BFGS probe, Karpathy's splits
        Protocol("common", "1", _COMMON),
        # papers on Bayesian weights and on label augmentations: the same, and CyCLIP's probe on projected features
        # official: github.com/goel-shashank/CyCLIP@707e7c7 src/evaluate.py
        Protocol("bayes", "1", _COMMON),
        # NUCLR: images are squashed for retrieval, and classified ones are normalised otherwise than in training
        # official: github.com/bokun-wang/NUCLR@ddaec8d dataset/__init__.py (create_val_dataset)
        # official: github.com/bokun-wang/NUCLR@ddaec8d clip.py (create_zeroshot_dataloader)
        Protocol(
            "nuclr",
            "1",
            {
                "zero_shot": ("imagenet1k", "cifar100"),
                "retrieval": RETRIEVAL,
                "validation": ("mscoco_captions", "flickr30k"),
            },
            retrieval_resize="squash",
            class_channels=IMAGENET_CHANNELS,
            own_channels={"cifar10": CIFAR_CHANNELS, "cifar100": CIFAR_CHANNELS},
        ),
        # NCU: plain accuracy everywhere, and ImageNet's channel statistics, as in its training
        Protocol(
            "ncu",
            "1",
            {
                "zero_shot": ("imagenet1k", *NCU),
                "linear_probe": ("sun397", "pets", "food101", "imagenet1k"),
                "retrieval": ("flickr30k", "mscoco_captions"),
                "validation": ("mscoco_captions",),
            },
            class_channels=IMAGENET_CHANNELS,
            retrieval_channels=IMAGENET_CHANNELS,
        ),
        # ProLIP: the DataComp suite, its metrics, all captions of an image
        Protocol(
            "prolip",
            "1",
            {
                "zero_shot": DATACOMP,
                "shift": DATACOMP_SHIFTS,
                "retrieval": DATACOMP_RETRIEVAL,
                "validation": ("mscoco_captions",),
            },
            captions=None,
            main=True,
        ),
    )
}
