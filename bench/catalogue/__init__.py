"""Everything with a name that a suite may say: tasks, data sets, noise, architectures, cards. Needs no torch."""
