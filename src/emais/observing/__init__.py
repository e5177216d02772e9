"""From a minibatch to sums, and from sums to the report, without making the training step wait."""
