"""The layouts of ProLIP's tables, as data."""

from __future__ import annotations

from reports.layout import Layout, Own, Paper

_FLAGS = {
    "inc_v_in_t=false; inc_masked=false": "no inclusion loss",
    "inc_v_in_t=true; inc_masked=false": "image in text",
    "inc_v_in_t=false; inc_masked=true": "input in masked input",
    "inc_v_in_t=true; inc_masked=true": "both",
}
_FINE_TUNED = "1.28B*: fine-tuned from other authors' weights with 1.28 B samples; theirs are not counted."
_TASKS = "FT: fine-tuned from weights of SigLIP or DFN. Metrics are those of the DataComp suite, a task's own."
_SETTING = "ε and c of the inclusion loss, where not named: -20 and 1000, as the paper's text says."

PROLIP = Paper(
    name="prolip",
    title="Probabilistic Language-Image Pre-Training",
    layouts=(
        Layout(
            "1",
            "Zero-shot classification and retrieval, DataComp's 38 tasks",
            ("method", "pretrain"),
            ("heading",),
            ("backbone",),
            notes=(
                "The row ProLIP 1.28B is that of (ε, c) = (-10, 10) in Table C.5. The setting that the text names, "
                "(-20, 1000), stands in Table C.4: 67.6, 55.0, 57.1, 53.4, 57.3.",
                _FINE_TUNED,
            ),
        ),
        Layout("2", "Retrieval along a hierarchy, HierarCaps", ("method", "setting"), ("metric",)),
        Layout(
            "3",
            "Prompts of ImageNet, top-1 in percent",
            ("method", "setting"),
            ("heading",),
            notes=(
                "The paper fits BPRW to images of the set that it scores. Ours takes them from the training split; its "
                "filtering keeps prompts up to the mean variance of their class, its top K the surer half.",
            ),
        ),
        Layout("C.1", "The 38 tasks of Table 1", ("method",), ("heading",), notes=(_TASKS,)),
        Layout("C.2", "Fine-tuned towers", ("backbone", "setting"), ("heading",), notes=(_FINE_TUNED,)),
        Layout("C.3", "Ablation on CC3M + CC12M + RedCaps", ("method", "backbone", "setting"), ("metric",)),
        Layout("C.4", "Ablation on DataComp-1B", ("setting",), ("heading",), notes=(_SETTING,)),
        Layout(
            "C.5",
            "ε and c of the inclusion loss",
            ("setting",),
            ("heading",),
            notes=("The row (-10, 10) is the one that Table 1 prints as ProLIP 1.28B.",),
        ),
        Layout("C.6", "Seconds for 50,000 images", ("method",), ("backbone",), notes=("The hardware is not named.",)),
        Layout(
            "C.7",
            "Filtering DataComp small",
            ("method", "pretrain"),
            ("heading",),
            notes=("These are shares, not percent.",),
        ),
        Layout("C.8", "Occlusion and uncertainty", ("metric",), ("setting",)),
        Layout("C.9", "PGD attacks and uncertainty, 1,000 images", ("metric",), ("setting",)),
        Layout("text 1", "In the text of Section 1", ("method",), ("metric",)),
        Layout("text 4.2", "In the text of Section 4.2", ("method",), ("metric",)),
        Layout("text C.6", "In the text of Section C.6", ("method",), ("metric",)),
    ),
    words={
        **_FLAGS,
        "DataComp-1B, 1.28B seen": "1.28B",
        "DataComp-1B, 12.8B seen": "12.8B",
        "DataComp-1B, 1.28B* seen": "1.28B*",
        "probabilistic_traversal=false": "",
        "probabilistic_traversal=true": "by inclusion",
        "gain_pp=0.03": "",
        "gain_pp=0.07": "",
        "gain_pp=0.12; K=0": "K = 0",
        "gain_pp=0.99; K=5": "K = 5",
        "gain_pp=1.21; K=9": "K = 9",
        "IN dist. shifts (6)": "IN shifts (6)",
        **{f"flops={size}": f"({size} FLOPs)" for size in ("44.44G", "136.41G", "233.54G", "381.68G")},
        "ViT-B/16, uncertainty arch -": "",
        "ViT-B/16, uncertainty arch multi-head": "multi-head",
        "ViT-B/16, uncertainty arch [UNC]": "[UNC]",
        "ImageNet zero-shot top1": "IN top-1",
        "avg sigma_v^2": "avg σ_v^2",
        "avg sigma_t^2": "avg σ_t^2",
        "avg sigma_v": "avg σ_v",
        "HierarCaps recall": "HierarCaps recall",
        **{
            f"eps={eps}; c={c}": f"ε = {eps}, c = {c}"
            for eps, c in ((-20, 1000), (-10, 1000), (-5, 1000), (-5, 100), (-5, 10), (-10, 10), (-100, 10))
        },
        **{
            f"DataComp small {size}": f"({size} pairs)"
            for size in ("12.8M", "3.2M", "1.3M", "3M", "1.4M", "2.6M", "2.3M")
        },
        **{f"occlusion_percent={share}": f"{share} %" for share in ("0", "2.5", "5", "7.5", "10")},
        "pgd_iters=0": "clean",
        **{f"pgd_iters={n}": f"PGD{n}" for n in (1, 5, 10, 40)},
        "zero-shot top1": "ImageNet-1k zero-shot",
        "share of adjacent levels with decreasing uncertainty (%)": "levels whose uncertainty decreases, %",
        "top1 with variance averaged by 1/N (used)": "top-1, variances averaged by 1/N (used)",
        "top1 with variance averaged by 1/N^2": "top-1, by 1/N^2",
        "CLIP (Ilharco 2021) same seen samples as 12.8B": "CLIP (Ilharco 2021), 12.8B samples",
    },
    datasets={
        "ImageNet": "imagenet1k",
        "Caltech-101": "caltech101",
        "CIFAR-10": "cifar10",
        "CIFAR-100": "cifar100",
        "CLEVR Counts": "clevr_count_all",
        "CLEVR Distance": "clevr_closest_object_distance",
        "Country211": "country211",
        "Describable Textures": "dtd",
        "EuroSAT": "eurosat",
        "FGVC Aircraft": "fgvc_aircraft",
        "Food-101": "food101",
        "GTSRB": "gtsrb",
        "ImageNet 1k": "imagenet1k",
        "ImageNet Sketch": "imagenet_sketch",
        "ImageNet v2": "imagenetv2",
        "ImageNet-A": "imagenet-a",
        "ImageNet-O": "imagenet-o",
        "ImageNet-R": "imagenet-r",
        "KITTI Vehicle Distance": "kitti_closest_vehicle_distance",
        "MNIST": "mnist",
        "ObjectNet": "objectnet",
        "Oxford Flowers-102": "flowers",
        "Oxford-IIIT Pet": "pets",
        "Pascal VOC 2007": "voc2007",
        "PatchCamelyon": "pcam",
        "Rendered SST2": "renderedsst2",
        "RESISC45": "resisc45",
        "Stanford Cars": "cars",
        "STL-10": "stl10",
        "SUN397": "sun397",
        "SVHN": "svhn",
        "iWildCam": "iwildcam",
        "Camelyon17": "camelyon17",
        "FMoW": "fmow",
        "Flickr": "flickr30k",
        "MSCOCO": "mscoco_captions",
        "WinoGAViL": "winogavil",
        "HierarCaps": "hierarcaps",
        "Dollar Street": "dollar_street",
        "GeoDE": "geode",
    },
    metrics={
        "zero-shot (accuracy / recall) %": Own(("zero_shot", "shift", "retrieval"), ""),
        "zero-shot %": Own(("zero_shot", "shift", "retrieval"), ""),
        "ImageNet zero-shot top1": Own(("zero_shot", "shift"), "top1"),
        "Precision": Own(("hierarchy",), "precision"),
        "R@1": Own(("hierarchy",), "recall"),
        "R@1 of [ROOT] only": Own(("hierarchy",), "r1_root"),
        "HierarCaps recall": Own(("hierarchy",), "recall"),
    },
    rows={
        "a photo of {}": Own(("prompts",), "single"),
        "OpenAI 80 prompts": Own(("prompts",), "all"),
        "Filtering by sigma stats": Own(("prompts",), "filtered"),
        "Top-K prompts": Own(("prompts",), "half"),
        **{f"BPRW K={shots}": Own(("prompts",), f"bprw_{shots}") for shots in (0, 5, 9)},
    },
    scores={"probabilistic_traversal=false": "cosine", "probabilistic_traversal=true": "csd"},
    averages={"Average": ()},
    means={
        "IN dist. shifts (6)": "shift",
        "VTAB (13)": "vtab",
        "Retrieval (3)": "retrieval",
        "Average (38)": "datacomp",
    },
)
