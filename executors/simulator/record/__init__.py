"""What is kept of a run: who held which rank when, series, decisions, and the figures they come to."""
