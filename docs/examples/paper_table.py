"""A paper's table with your own rows next to the printed ones, as LaTeX: `python paper_table.py`, seconds.

A run of seconds stands in for suites/nuclr_cc3m.yaml, whose numbers mean something.
"""

from pathlib import Path

import bench

ROWS = ["methods=[clip, nuclr]", "tables={paper: nuclr, numbers: ['1'], rows: {clip: CLIP, nuclr: NUCLR}}"]

if __name__ == "__main__":
    bench.run_suite(bench.load_suite("smoke", ROWS), "results")
    results = bench.Results("results")
    print("tables:", *results.tables())
    Path("table.tex").write_text(results.latex("paper_nuclr_1"))
    print(Path("table.tex").read_text())
    results.figure("noise", width="column").savefig("noise.pdf")
