"""The fault swarm: from each seed, a random world with random faults, which has to keep every promise and heal afterwards.

Swarm style (Groce et al., ISSTA 2012): each seed leaves some kinds of faults out and overdoes others, since a fault that
is always there hides what another would bring about. Randomness lives here; what it is drawn for lives in
`rankcore.testing.schedules`, the core alone, and in `executors.simulator`, the whole world.
"""
