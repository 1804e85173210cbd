"""Shards of training pairs from what people have: `bench data shard`. A form of input is one file of `forms`."""
