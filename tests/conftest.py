"""One thread a process: two cores shared by parallel tests are faster so, and results do not depend on the machine."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import hypothesis
import pytest

gc.disable()  # until all is imported: a quarter of the time of imports goes into looking for garbage among modules
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # more would be processes, which import torch first
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")  # else torch compiles a trial for each instruction set
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else every fork of a process that tokenized says so
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each worker and each process of a test compiles all anew
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when huggingface_hub is imported

import bench.machine.torchvision_fix  # noqa: E402, F401  before anything imports open_clip or torchvision
from bench.adapters import registry  # noqa: E402
from bench.store import RunStore, RunWriter, writing  # noqa: E402

sys.dont_write_bytecode = False

# No example may fail because the machine is busy.
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")


#: The files that take longest, in this order. They start first, so that no worker is left alone with one at the end.
LONG = (
    "checks/test_methods reports/test_reference launch/test_nodes docs/test_tour launch/test_jobs test_types "
    "launch/test_slurm_job test_examples launch/test_gpus launch/test_evaluation_ranks cli/test_new_method "
    "training/test_resume planning/test_tune adapters/test_source_hash launch/test_scored reports/test_outputs "
    "launch/test_scored_ranks reports/test_selection checks/test_mutations towers/test_towers training/test_ranks "
    "checks/test_side cli/test_run reports/test_drawn launch/test_worker suite/test_finetune_suites "
    "models/test_open_clip_models reports/test_sizes"
)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which files take longest, with what their fixtures take."""
    seconds = Counter[str]()
    for report in (one for of in terminalreporter.stats.values() for one in of if hasattr(one, "duration")):
        seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.write_sep("=", "slowest files")
    terminalreporter.write_line(" ".join(f"{name}:{taken:.0f}s" for name, taken in seconds.most_common(60)))


def pytest_configure(config: pytest.Config) -> None:
    """pytest-xdist would begin with the files that have most tests."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files of `LONG`; the others follow as they are."""
    rank = {f"{name}.py": number for number, name in enumerate(LONG.split())}
    folder = Path(__file__).parent
    places = {path: rank.get(os.path.relpath(path, folder), len(rank)) for path in {item.path for item in items}}
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish() -> None:
    """Look for garbage in what tests make, never again among modules."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def writer() -> Iterator[Callable[[RunStore], RunWriter]]:
    """The writer of a run, whose claim is held until the test ends; the same call again gives the same one."""
    with contextlib.ExitStack() as stack:
        writers: dict[Path, RunWriter] = {}

        def of(run: RunStore) -> RunWriter:
            if run.folder not in writers:
                writers[run.folder] = stack.enter_context(writing(run))
            return writers[run.folder]

        yield of


@pytest.fixture(scope="session")
def unreported() -> Callable[[Path, str], Path]:
    """`unreported(results, suite)` returns `results`, where `bench run` finds a page younger than every run.

    So it writes no report, which takes longer than a tiny run.
    """

    def prepared(results: Path, suite: str) -> Path:
        page = results / suite / "report.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.touch()
        os.utime(page, (2**32, 2**32))  # in the year 2106
        return results

    return prepared


def write_webdataset(
    folder: Path,
    samples: Sequence[dict[str, object]],
    *,
    split: str = "test",
    shards: int = 1,
    classes: Sequence[str] = (),
    templates: Sequence[str] = (),
    kind: str = "",
) -> Path:
    """A split as `clip_benchmark_export_wds` leaves it, written by the same writer; parts of a sample by extension."""
    import webdataset

    home = folder / split
    home.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        with webdataset.TarWriter(str(home / f"{shard}.tar"), encoder=True) as tar:
            for number in range(shard, len(samples), shards):
                tar.write({"__key__": f"s{number:07d}", **samples[number]})
    (home / "nshards.txt").write_text(f"{shards}\n")
    for name, lines in (("classnames", classes), ("zeroshot_classification_templates", templates)):
        if lines:
            (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    if kind:
        (folder / "dataset_type.txt").write_text(f"{kind}\n")
    return folder


@pytest.fixture
def webdataset_folder() -> Callable[..., Path]:
    return write_webdataset


@pytest.fixture
def evaluation_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder's place for evaluation data."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data" / "evaluation"


@pytest.fixture
def own_plugins() -> Iterator[Callable[[Path], str]]:
    """Start a test without plug-ins, give it `registry.add_plugin`, and forget those that it added."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_plugins", {})
        registry.clear_caches()
        yield registry.add_plugin
    registry.clear_caches()


PATIENCE = 1200.0  #: seconds to wait for an event that is due within a few, because the machine may be very busy
FORKED = """
import os, runpy, sys
os.setsid()
os.environ.clear()
os.environ.update(environment)
os.chdir(folder)
for number, path in ((1, output), (2, errors)):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), number)
sys.argv = arguments
if arguments[0] == "bench":
    from bench.cli import main
    if {"--jobs", "--processes"} & {*arguments}:
        from forked_server import prepare
        prepare()
    main()
else:
    sys.path.insert(0, os.path.dirname(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")
"""


def children(pid: int) -> list[int]:
    """The processes that a process started and that still run, in the order of their start."""
    return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


class ForkedProcess:
    """`bench` or a script as a process of its own. It is forked from a server that has imported torch already.

    `merged` sends standard error to standard output. `finish` waits for its end and returns its exit code (minus the
    number of the signal that ended it) and what it printed.
    """

    def __init__(self, arguments: Sequence[object], log: Path, merged: bool, cwd: Path, env: Mapping[str, str]) -> None:
        self._output, self._errors = log.with_suffix(".out"), log.with_suffix(".out" if merged else ".err")
        keywords = {
            "arguments": [str(argument) for argument in arguments],
            "output": str(self._output),
            "errors": str(self._errors),
            "folder": str(cwd),
            "environment": {**os.environ, **env},
        }
        context = multiprocessing.get_context("forkserver")
        self._process = context.Process(target=exec, args=(FORKED, keywords))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait_until(self, condition: Callable[[], bool], moment: str) -> None:
        """Wait for something that happens while the process runs."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert self.poll() is None, f"ended before {moment}: {self.output}"
            assert time.monotonic() < end, f"never came: {moment}"
            time.sleep(0.01)

    def finish(self) -> tuple[int, str]:
        self._process.join(PATIENCE)
        code = self.poll()
        assert code is not None, f"still runs: {self.output}"
        return code, self.output

    def workers(self) -> list[int]:
        """The processes that make its runs, in the order of their start: those of its fork server."""
        return [pid for server in children(self.pid) for pid in children(server)]

    @property
    def output(self) -> str:
        return self._output.read_text() if self._output.exists() else ""

    @property
    def errors(self) -> str:
        return self._errors.read_text() if self._errors.exists() else ""

    def end(self) -> None:
        """Kill it with the processes that it started, whatever became of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            if self.poll() is None:  # before it has a session of its own
                os.kill(self.pid, signal.SIGKILL)
        self._process.join()


_started: list[ForkedProcess] = []


@pytest.fixture(scope="session", autouse=True)
def warm_fork_server() -> None:
    """Start the server that `bench` processes are forked from, with all that any of them imports.

    A process has one such server, so this one is started before a test makes the ranks of `bench check` start another.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(["warm"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]))
        patch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")  # as a rank of `bench run` sets it before it loads torch
        forkserver.ensure_running()


@pytest.fixture(scope="session")
def start_script(
    tmp_path_factory: pytest.TempPathFactory,
    warm_fork_server: None,  # noqa: ARG001
) -> Callable[..., ForkedProcess]:
    """Start a script: `start_script(path, *arguments)`. It ends with the test, or the fixture, that started it."""
    logs = tmp_path_factory.mktemp("forked")

    def start(
        *arguments: object, merged: bool = True, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> ForkedProcess:
        process = ForkedProcess(arguments, logs / f"{time.monotonic_ns()}", merged, cwd or Path.cwd(), env or {})
        _started.append(process)
        return process

    return start


@pytest.fixture(scope="session")
def start_bench(start_script: Callable[..., ForkedProcess]) -> Callable[..., ForkedProcess]:
    """Start `bench ARGUMENTS`: `start_bench("run", suite)`, as `start_script` does."""
    return partial(start_script, "bench")


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    yield
    while _started:
        _started.pop().end()
