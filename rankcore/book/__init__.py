"""Bookkeeping: the only code that writes the tables of a draft, so that every index agrees with the replicas.

`replicas` adds, changes and removes a replica; `slots` opens, fills and closes the ranks to be filled; `nodes` follows who is
where and which local and node ranks are taken; `bundles` who stands on which bundle of a placement group. The rules
(`rankcore.rules`) decide; nothing here does.
"""
