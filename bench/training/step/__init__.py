"""Parts of a training step: sums of gradients over ranks, tiles of the loss."""
