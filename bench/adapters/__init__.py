"""Adapters as the harness sees them: which definitions of `methods/` a method's results depend on."""
