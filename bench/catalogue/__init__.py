"""Everything that a suite may name: tasks, data sets, noise, architectures, cards. Needs no torch."""
