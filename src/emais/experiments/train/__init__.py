"""Training: the five-line loop, one ResNet, many small networks at once, and what they share."""
