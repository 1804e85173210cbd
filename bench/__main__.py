"""`python -m bench`, the same as `bench`."""

from bench.cli import main

main()
