"""Benchmarks: ratios measured in one run, printed as a table and saved under build/bench/. See bench/README.md."""
