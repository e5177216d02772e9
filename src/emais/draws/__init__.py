"""From (seed, step) to samples and their r: random numbers, epochs, the exact sampler, the next draw."""
