"""`bench check`: runs a list of checks on any adapter and compares it with what it declares."""
