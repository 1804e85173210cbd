"""Tables of a suite's report, and their CSV, LaTeX and text."""
