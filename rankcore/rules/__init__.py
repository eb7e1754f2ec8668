"""The rules, one module a subject, in the order in which one step applies them (section 2.5 of the design).

    news        what replicas say of themselves: placed, ready, reconfigured, unhealthy
    machines    nodes come, change and are lost
    endings     a replica is gone: its slot is kept for a replacement (R6) or its rank released (R7); start failures
    requests    what users want: another spec, replicas stopped, the deployment deleted
    retry       back-off ends, what was given up is tried again (V19)
    preempt     certain replicas leave for good, and the target falls by as many
    recovery    a controller came back: reports are gathered, duplicates and gaps repaired (R10)
    timeouts    what has fallen due: repeats, start time-outs, back-off, overdue reports
    shrink      too many slots: which are given up, and which replicas are stopped (R11)
    bind        who has a place, or was started early for an update, fills what lacks somebody (V2, V18)
    fill        too few: losers, kept slots, initialisation with all three ranks, newcomers (R4, R6, R11)
    evict       planned loss: cordons, drains, replacement by name; successors first, deadlines kept (V14, V15)
    forget      nodes that were lost long ago (V20)
    static      bundles of a placement group: lost, back, wanted by another mapping (S1..S8)
    roll        another version: slot by slot, within the budget of unavailable replicas
    configure   another user_config: in place (R12)
    compact     gaps: the least possible number of moves (R8)
    scarcity    too little room: who runs with the highest rank moves into a lower one that has none (V18)
    stall       an update without any progress: said, and rolled back where that is asked for (V9)
    conclude    the deployment's status, the routes, the next wake-up

`leaving` and `messages` hold what several of them do: telling a replica to go, and telling it its ranks.
"""
