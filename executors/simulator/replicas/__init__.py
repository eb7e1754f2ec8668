"""Replicas: what one believes, and the process that it lives and ends in."""
