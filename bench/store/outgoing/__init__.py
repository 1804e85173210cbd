"""What leaves a store to be committed or sent: the runs of a suite in one small archive."""
