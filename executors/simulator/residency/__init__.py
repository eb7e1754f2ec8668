"""Scenarios of models that do not all fit: which are HOT, WARM or COLD, on which GPUs, and who waits for a load meanwhile."""
