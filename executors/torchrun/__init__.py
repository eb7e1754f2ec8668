"""Ranks that stay with their agents, under stock torchrun: a rendezvous backend, and the coordinator that it asks.

`entry` is what torchrun finds, `handler` what it calls; `link`, `lease` and `ending` keep an agent's connection, know when
its time is over, and end it. `coordinator` wraps `rankcore.gang` without sockets or clock, `server` gives it both. What they
say to each other is in `messages`. Nothing here decides who has which rank.
"""
