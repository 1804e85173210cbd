"""The papers' printed tables and numbers, and ours beside them."""
