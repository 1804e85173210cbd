"""Statistics over seeds, examples and data sets."""
