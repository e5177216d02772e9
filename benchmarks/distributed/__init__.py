"""Several processes: what they cost, and what parts do to the variance."""
