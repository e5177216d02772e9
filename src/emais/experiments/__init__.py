"""Data sets, models and the runs behind the demo and the benchmarks. The library itself needs none of it."""
