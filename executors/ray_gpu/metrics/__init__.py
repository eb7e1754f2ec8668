"""Metrics: counted in plain numbers where things happen, and published from a thread through Ray's own."""
