"""The report of a scenario of models: memory lanes of all GPUs, and what the requests felt."""
