"""Runs: what to run, how it is run, and the records of what was run."""
