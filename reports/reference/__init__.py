"""The committed comparisons of results/reference: their pages, an index, and what becomes of the papers' claims."""
