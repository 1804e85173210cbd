"""`bench data shard`: shards of training pairs from tables, folders and JSON. `forms` reads each form of input."""
