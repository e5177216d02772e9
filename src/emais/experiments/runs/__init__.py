"""Runs: what to run, where it is written down, and the commands that do it."""
