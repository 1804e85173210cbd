"""Figures of a suite's report."""
