"""Requests: where they come from, how long they take, and the queue that they wait in."""
