"""Parts of a training step: pixels on the device and on their way there, tiles of the loss, sums of gradients."""
