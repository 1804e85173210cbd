"""`bench check`: does an adapter do what it says? A generated list of checks on any adapter."""
