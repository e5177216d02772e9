"""The learning rate: the factor of one step, and a schedule in effective steps."""
