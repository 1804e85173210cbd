"""The board as a static site over stored comparisons and bundles."""
