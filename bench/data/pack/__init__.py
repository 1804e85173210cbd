"""Shards of training pairs from what people have: `bench data pack`. A form of input is one file of `forms`."""
