"""Scenarios of models that share GPUs, as typed values: one module for each part of the file, and `whole` for all of it."""
