"""Noise: which training pairs are corrupted, how, and where their captions come from.

A run has one kind of noise (`bench.catalogue.noise_kinds`). Fixed noise corrupts rows for the whole run: a manifest
lists the corrupted rows and their donors. Other kinds draw captions again within the batch in every step. A module here
makes one kind, or several that are made alike.
"""
