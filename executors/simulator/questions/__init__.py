"""Questions that take many runs: comparisons and sweeps."""
