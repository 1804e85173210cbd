"""One training: its inputs, its loop, its ledger."""
