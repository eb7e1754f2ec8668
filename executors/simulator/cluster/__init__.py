"""Nodes, what reaches them, and when they are gone."""
