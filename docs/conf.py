"""Settings of the documentation site. `sphinx-build -W --keep-going docs build/docs` builds it, without network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from importlib.metadata import version as installed

project = "robust-cl-bench"
author = copyright = "the robust-cl-bench authors"
version = release = installed(project)
extensions = ["myst_nb", "sphinx.ext.autodoc", "tools.handbook"]
nb_execution_mode = "off"  # the tour shows the outputs that are committed in it

myst_enable_extensions = []  # "$BENCH_DATA" is no formula
myst_heading_anchors = 4
smartquotes = False  # quotes of words that a suite says stay as they are
default_role = "code"  # docstrings write `name`
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = "robust-cl-bench"
html_static_path = ["_static"]
html_css_files = ["handbook.css"]
html_show_sourcelink = False
html_copy_source = False
pygments_style, pygments_dark_style = "friendly", "monokai"
