"""Trained models: loading, evaluation, export."""
