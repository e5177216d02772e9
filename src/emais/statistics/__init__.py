"""Numbers kept for each sample, on the CPU or on a device."""
