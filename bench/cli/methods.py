"""Verbs about methods."""

from __future__ import annotations

import typer

from bench.cli.options import Plugins, load_plugins


def methods(plugin: Plugins = None) -> None:
    """List the methods: paper, fidelity, what they keep, what a step costs, their presets."""
    load_plugins(plugin)
    from bench.catalogue import catalogue

    typer.echo(catalogue())
