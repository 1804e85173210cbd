"""How results are shown: tables, figures, statistics. Never imports torch."""
