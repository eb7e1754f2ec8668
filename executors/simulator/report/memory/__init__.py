"""The report of a scenario with residency: memory lanes of all GPUs, and what the requests felt."""
