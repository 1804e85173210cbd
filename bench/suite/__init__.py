"""Suites: the YAML as typed settings, and the runs that it expands into. Needs no torch."""
