"""The papers' printed tables and numbers, and ours next to them."""
