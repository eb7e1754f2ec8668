"""Requests on Ray: from a handle, by a router and a connection, to a replica's user code, and the answers back.

    handle, response      what users hold
    composition           responses that are arguments of other calls
    router                which replica takes which call
    ways                  its channels: connected to, connected to again, ended
    channel, transports   one process's way to one replica
    frames, packing       what travels on it; `pieces`, what is large of that; `loops`, the event loops at both ends
    server, connection    the replica's end of it; `running` calls, `streams` of answers, `threads` for synchronous code
    batching, batches, multiplexing   what user code can ask for

Replica processes import `server` and what it needs, which is nothing of the core.
"""
