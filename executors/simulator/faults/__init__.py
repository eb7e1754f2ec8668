"""What goes wrong: single faults, rates, traces, and faults in words."""
