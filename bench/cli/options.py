"""Options of the commands as annotated types, and what several commands share: the store, the name of a suite."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.console.text import echo, terminal_width
from bench.errors import UserError
from bench.launch.launchers import LAUNCHERS

if TYPE_CHECKING:
    from bench.store import Store
    from bench.suite.suite import Suite
    from reports.build import Built

SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="A YAML file, or the name of a shipped suite.")]
SomeSuite = Annotated[
    str | None, typer.Argument(metavar="[SUITE]", help="A YAML file, or the name of a shipped suite; default: all.")
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or enough of its beginning.")]
Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where results are stored.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=VALUE", help="Change a value of the suite, as in --set train.lr=1e-3."),
]
Plugins = Annotated[
    list[str] | None, typer.Option("--plugin", metavar="FILE", help="A file with a method; its code is executed.")
]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The data folder; default: $BENCH_DATA or ./data.", show_default=False),
]


def output_file(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the file of an option that is written after the work. Raises UserError at once if it cannot be a file.

    The folder must exist: a mistyped name should not create one.
    """
    if path is not None and not path.parent.is_dir():
        raise UserError(f"{option.opts[0]} {path}: cannot be written: there is no folder {path.parent}")
    if path is not None and path.exists() and not path.is_file():
        raise UserError(f"{option.opts[0]} {path}: cannot be written: it is a folder, a pipe or a device; name a file")
    return path


CsvFile = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", callback=output_file, help="Also write the table to this file."),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", callback=output_file, help="Also write a page with the pictures."),
]


def jobs_number(text: str) -> int | None:
    """Parse `--jobs`: a number from 1, or None for "auto"."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text} is neither auto nor a positive number of runs")
    return int(text)


# Options of `bench run`
Only = Annotated[list[str] | None, typer.Option("--only", metavar="LABEL", help="Only this entry; may be repeated.")]
Seeds = Annotated[str, typer.Option("--seeds", metavar="0,1", help="Only these of the suite's seeds.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N|auto",
        parser=jobs_number,
        show_default="auto",
        help="Runs at a time, each with train.threads; auto: as cores and memory allow.",
    ),
]
Gpus = Annotated[int | None, typer.Option("--gpus", min=1, help="GPUs per run, with one process each.")]
Processes = Annotated[
    int | None, typer.Option("--processes", min=1, help="Processes per run, on a machine without GPUs.")
]
LauncherName = Annotated[
    str,
    typer.Option("--launcher", metavar="NAME", help="; ".join(f"{one.name}: {one.about}" for one in LAUNCHERS) + "."),
]
Track = Annotated[
    str | None, typer.Option("--track", metavar="tensorboard|wandb", help="Also stream metrics to this tracker.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the runs, their cost and what is missing; execute nothing.")
]
PlanOnly = Annotated[
    bool, typer.Option("--plan-only", help="Queue the runs for `bench worker`, which trains them; train nothing.")
]
QueuedSuites = Annotated[
    list[str] | None,
    typer.Option("--suite", metavar="NAME", help="Only this queued suite; may be repeated.", show_default="all"),
]
GpuName = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="With --dry-run: hours on this GPU, such as a100.")
]
Utilisation = Annotated[
    float | None, typer.Option("--utilisation", metavar="SHARE", help="With --gpu: share of its peak; default: 0.35.")
]

# Options of `bench eval`
CheckpointFile = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="A run's weights or checkpoint, a state dict, open_clip's MODEL/TAG, or an exported folder.",
    ),
]
TasksOf = Annotated[str, typer.Option("--suite", metavar="SUITE", help="Suite with tasks and towers, by file or name.")]
ReadAs = Annotated[
    str | None,
    typer.Option("--method", metavar="LABEL", help="Method for a file that is not a run's; default: the baseline."),
]
Architecture = Annotated[
    str | None,
    typer.Option("--towers", metavar="MODEL", help="The open_clip architecture of a state dict."),
]
RESULTS = Path("results")


def store_at(results: Path) -> Store:
    """Open the store below a folder. Raises UserError if the path is not a folder."""
    from bench.store import Store

    if results.exists() and not results.is_dir():
        raise UserError(f"--results {results}: not a folder")
    return Store(results)


def use_data(folder: Path | None) -> None:
    """Make the folder of `--data` the data folder. Raises UserError if the path is not a folder."""
    from bench import data_folder

    if folder is not None:
        if folder.exists() and not folder.is_dir():
            raise UserError(f"--data {folder}: not a folder")
        data_folder.use_data_folder(folder)


def write_report(name: str, store: Store, outline: Mapping[str, Any] | None = None, **options: Any) -> Built:
    """Build a suite's report, from its `outline` if it has no plan, and print its answer.

    `options`: widths and methods of a paper, see `reports.build.build`. Damaged runs are named on stderr.
    """
    from reports.build import build

    built = build(name, store, outline, **options)
    echo(*built.scoreboard)
    echo(*(line for one in built.answers for line in textwrap.wrap(one, terminal_width(1 << 16))))
    echo(*built.damaged, err=True)
    return built


def suite_name(suite: str, store: Store) -> str:
    """Return the name of a suite given by file or name; print a note if its plan was made from other settings.

    A suite whose file is gone can still be named if the store has its plan.
    """
    from bench import resources

    plan = store.plan(suite) if Path(suite).name == suite else None
    if plan is not None and not resources.is_suite(suite):
        return suite
    from bench.suite.suite import load_suite

    loaded = load_suite(suite, check_methods=False)
    plan = store.plan(loaded.name)
    if plan is not None and plan["suite_hash"] != loaded.hash:
        parts = _changed_parts(plan, loaded)
        what = f" ({', '.join(parts)})" if parts else ""
        note = f"note: the last plan of {loaded.name} was made from other settings{what} than {suite} has now"
        echo(f"{note}; 'bench run {suite}' brings it up to date", err=True)
    return loaded.name


def _changed_parts(plan: dict[str, Any], suite: Suite) -> list[str]:
    """Return the sections of a suite that differ from those of its plan; [] where a method of it is not known here."""
    from bench.planning.plan_file import plan_outline

    try:
        now = {**plan_outline(suite), "settings": suite.model_dump(mode="json")}
    except UserError:
        return []
    parts = [part for part in ("budget", "noises", "seeds") if plan[part] != now[part]]
    return parts + [part for part, own in plan["settings"].items() if own != now["settings"][part]]


def exit_if(failed: object) -> None:
    """End the command with exit code 1 if something failed, which was said before."""
    if failed:
        raise typer.Exit(1)


def load_plugins(files: list[str] | None) -> None:
    """Register the methods in the files of `--plugin`."""
    from bench.adapters import registry

    for file in files or ():
        registry.add_plugin(file)
