"""Tools that developers run by hand, and the generated part of the documentation site."""
