"""Numbers and claims from recorded runs."""
