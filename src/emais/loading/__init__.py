"""How a draw travels with its minibatch: the loader, a pass and its draws in flight, workers."""
