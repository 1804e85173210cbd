"""Imports and reads once what `bench` processes need, for the server that tests fork them from."""

from __future__ import annotations

import gc
from importlib import import_module

from bench import data
from bench.data import emoji
from bench.data.source import data_source
from bench.suite.settings import DataSettings
from bench.training.inputs import Vocabularies

gc.disable()  # until all is imported, as in conftest.py

#: modules that `bench run` imports where it needs them
LAZY = (
    "bench.cli.runs bench.launch.launchers.local bench.launch.side_by_side bench.launch.run_suite methods.ncu "
    "torch.utils.flop_counter "
    "PIL.WebPImagePlugin pyarrow.parquet pyarrow.pandas_compat pandas reports.build reports.tables.csv "
    "reports.figures.diagnostics reports.figures.scores reports.pages.html "
    "matplotlib.backends.backend_pdf fontTools.subset fontTools.varLib "
    "forked_server"
)
for name in LAZY.split():
    import_module(name)
for style in emoji.STYLES:
    emoji.read_style(style)
pairs = data_source(DataSettings(name="emoji", size=32)).pairs()
pairs.content_hash  # noqa: B018  decoded and hashed once for all
Vocabularies(pairs)(300, 12)  # the vocabulary of most suites of tests
for split in ("iid", "novel"):
    data.load_dataset(f"emoji/{split}", 32)
gc.freeze()  # no process that is forked from here looks for garbage in what is shared, and copies it by that
gc.enable()
