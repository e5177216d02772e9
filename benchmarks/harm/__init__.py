"""The harm suite: small real problems on which a careful user would notice if importance sampling did harm.

    python -m benchmarks.harm [--only digits,wine] [--seeds 10] [--quick] [--table]

For each problem SGD-Scan's learning rate and weight decay are tuned on the validation part; then all methods train
with that setting and ten other seeds, paired by seed. A seed also draws the split into training, validation and test
part, so a standard error over seeds covers the data, too (the splits overlap, so it is a little small). Runs go to
benchmarks/results/harm.jsonl, one line each, as they end; runs that are there already are not made again. The table
comes last.
"""
