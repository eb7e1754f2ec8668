"""The small systems that `rankcore check --small` explores whole, and the larger ones of `--deep`.

Each of the small ones aims at one corner of the design; together they exercise nearly every row of the life cycles,
and docs/verification.md names the others. The deep ones come in the order of how long they take.
"""

from typing import Any

from rankcore.testing.model.bounds import Bounds

OVERLAP: dict[str, Any] = {"max_surge": 1, "max_unavailable": 0, "hand_over": "overlap"}

SMALL: dict[str, Bounds] = {
    # who dies when, and what is under way then
    "crashes": Bounds(replicas=2, crashes=1, nodes=2),
    "crashes-twice": Bounds(replicas=2, healthy=True, crashes=2, nodes=2),
    "nodes": Bounds(replicas=2, nodes=2, healthy=True, node_losses=1, crashes=1),
    "nodes-starting": Bounds(replicas=2, nodes=1, node_losses=1),
    "suspects": Bounds(replicas=2, healthy=True, suspicions=1, stops=1),
    "failures": Bounds(replicas=1, failures=2, delays=1),
    # what users want, in the middle of what they wanted before
    "targets": Bounds(replicas=3, healthy=True, changes=2),
    "targets-starting": Bounds(replicas=2, start=1, changes=2),
    "namings": Bounds(replicas=3, healthy=True, namings=1, crashes=1),
    "namings-starting": Bounds(replicas=2, namings=1),
    "immediate": Bounds(replicas=3, healthy=True, namings=1, crashes=1, compaction="immediate"),
    "newest": Bounds(replicas=3, healthy=True, changes=1, crashes=1, victims="newest"),
    "highest-rank": Bounds(replicas=3, healthy=True, changes=1, crashes=1, victims="highest_rank"),
    "updates": Bounds(replicas=2, healthy=True, updates=1, changes=1),
    "surge": Bounds(replicas=2, healthy=True, updates=1, crashes=1, max_surge=1),
    "rollback": Bounds(replicas=2, healthy=True, updates=1, failures=2, restarts=1, rollback=True),
    "failed": Bounds(replicas=1, updates=1, failures=2, deletes=1),
    "failed-upscale": Bounds(replicas=1, start=0, changes=2, failures=1, updates=1, max_start_failures=1),
    "failed-and-back": Bounds(replicas=1, changes=2, failures=2, retries=1, total=4),
    "failed-config": Bounds(replicas=2, healthy=True, configs=1, failures=1, changes=1, max_start_failures=1),
    "retries": Bounds(replicas=2, failures=2, trials=2, max_start_failures=1),
    "retries-restarts": Bounds(replicas=1, failures=2, trials=1, restarts=1, max_start_failures=1),
    "configs": Bounds(replicas=2, healthy=True, configs=2, failures=1),
    "deletes": Bounds(replicas=2, deletes=1),
    "failed-unhealthy": Bounds(replicas=2, healthy=True, configs=1, failures=1, crashes=1, max_start_failures=1, total=3),
    "deletes-healthy": Bounds(replicas=2, start=1, healthy=True, changes=1, crashes=1, deletes=1, total=2),
    # the controller crashes
    "restarts": Bounds(replicas=2, restarts=1),
    "restarts-twice": Bounds(replicas=2, healthy=True, restarts=2, suspicions=1, total=2),
    "restarts-moving": Bounds(replicas=2, healthy=True, nodes=2, changes=1, restarts=1),
    "restarts-node": Bounds(replicas=2, healthy=True, nodes=2, node_losses=1, restarts=1),
    "restarts-deleting": Bounds(replicas=2, healthy=True, deletes=1, restarts=1),
    "restarts-updating": Bounds(replicas=1, healthy=True, updates=1, restarts=1, failures=1),
    "duplicates": Bounds(replicas=2, healthy=True, nodes=2, duplicates=1, crashes=1),
    "duplicates-starting": Bounds(replicas=2, duplicates=1),
    # what rests, or was given up, is tried again
    "retries-resting": Bounds(replicas=2, healthy=True, crashes=2, retries=1, total=3),
    "retries-update": Bounds(replicas=2, healthy=True, updates=1, failures=2, retries=1, max_start_failures=1, total=4),
    "retries-first": Bounds(replicas=1, failures=2, retries=1, restarts=1, max_start_failures=1, total=3),
    # messages and time
    "losses": Bounds(replicas=2, start=1, changes=1, losses=2),
    "repeats": Bounds(replicas=2, start=1, changes=1, repeats=1),
    "delays": Bounds(replicas=2, delays=1, losses=1),
    # ends that nobody has asked for
    "exits": Bounds(replicas=1, configs=1, exits=1, failures=1, total=2),
    "exits-surge": Bounds(replicas=1, healthy=True, updates=1, max_surge=1, stops=1, crashes=1, exits=1, suspicions=1, total=2),
    "exits-nodes": Bounds(replicas=1, healthy=True, updates=1, max_surge=1, stops=1, node_losses=1, failures=1, total=2),
    "exits-restarts": Bounds(replicas=1, configs=1, healthy=True, exits=1, restarts=1, repeats=1, crashes=1, total=3),
    "restarts-starting": Bounds(replicas=1, stops=1, restarts=1),
    # static placements
    "bundles": Bounds(replicas=2, bundles=2, healthy=True, bundle_losses=1, crashes=1),
    "bundles-starting": Bounds(replicas=2, bundles=2, bundle_losses=1),
    "bundles-pairs": Bounds(replicas=1, bundles=2, bundles_each=2, nodes=2, bundle_losses=1, node_losses=1, total=1),
    "bundles-nodes": Bounds(replicas=2, bundles=2, nodes=2, healthy=True, node_losses=1),
    "bundles-moving": Bounds(replicas=1, bundles=1, nodes=2, healthy=True, bundle_losses=1, node_losses=1, configs=1, total=2),
    "bundles-restarts": Bounds(replicas=2, bundles=2, healthy=True, bundle_losses=1, restarts=1),
    "bundles-retries": Bounds(replicas=1, bundles=1, failures=1, bundle_losses=1, trials=1, max_start_failures=1),
    "bundles-deletes": Bounds(replicas=1, bundles=1, bundle_losses=1, deletes=1),
    "mappings": Bounds(replicas=2, bundles=3, healthy=True, mappings=1, bundle_losses=1),
    "mappings-restarts": Bounds(replicas=2, bundles=2, healthy=True, mappings=1, bundle_losses=1, restarts=1, total=2),
    "groups": Bounds(replicas=1, bundles=1, healthy=True, mappings=2, bundle_losses=1),
    # room on nodes
    "rooms": Bounds(replicas=2, nodes=2, rooms=1, healthy=True, room_changes=1, crashes=1),
    "rooms-starting": Bounds(replicas=2, nodes=2, rooms=1, room_changes=1),
    "rooms-nodes": Bounds(replicas=2, nodes=2, rooms=1, healthy=True, node_losses=1, losses=1),
    "rooms-restarts": Bounds(replicas=2, nodes=2, rooms=2, healthy=True, changes=1, restarts=1, total=1),
    # a restart without another version
    "token-restart": Bounds(replicas=2, healthy=True, renewals=1, crashes=1, restarts=1, total=2),
    "token-restart-surge": Bounds(replicas=1, healthy=True, renewals=1, updates=1, restarts=1, max_surge=1, total=2),
    "token-restart-failures": Bounds(replicas=1, renewals=1, updates=1, failures=2, trials=1, max_start_failures=1, total=3),
    # an update that reaches only some ranks
    "partition": Bounds(replicas=2, healthy=True, updates=1, partitions=2, crashes=1, total=3),
    "partition-restarts": Bounds(replicas=2, healthy=True, updates=1, crashes=1, restarts=1, partition=1),
    "partition-surge": Bounds(replicas=2, healthy=True, updates=1, partitions=1, crashes=1, max_surge=1, total=2),
    "partition-failures": Bounds(
        replicas=2, healthy=True, updates=2, partitions=1, failures=1, crashes=1, partition=1, max_start_failures=1, total=3
    ),
    "partition-targets": Bounds(replicas=3, healthy=True, updates=1, changes=1, crashes=1, partition=2, total=2),
    "partition-namings": Bounds(replicas=2, healthy=True, namings=1, updates=1, partition=1, max_surge=1),
    "partition-configs": Bounds(replicas=2, healthy=True, configs=1, failures=1, partitions=1, max_start_failures=1),
    # room that the controller knows nothing of, and that an update with surge uses up
    "surge-full": Bounds(replicas=2, rooms=2, parking=True, healthy=True, updates=1, crashes=1, max_surge=1),
    "surge-full-twice": Bounds(replicas=2, rooms=2, parking=True, healthy=True, updates=2, max_surge=2),
    "surge-full-raised": Bounds(replicas=2, start=1, rooms=2, parking=True, healthy=True, changes=1, updates=1, max_surge=1),
    "surge-full-failures": Bounds(
        replicas=2, rooms=2, parking=True, healthy=True, updates=1, failures=1, max_surge=2, max_start_failures=1, rollback=True
    ),
    "surge-full-nodes": Bounds(
        replicas=2, nodes=2, rooms=1, parking=True, healthy=True, updates=1, node_losses=1, room_changes=1, total=2, max_surge=1
    ),
    "surge-full-partition": Bounds(
        replicas=2, rooms=2, parking=True, healthy=True, updates=1, partitions=1, crashes=1, partition=1, max_surge=1
    ),
    "surge-full-restarts": Bounds(replicas=2, rooms=2, parking=True, healthy=True, updates=1, restarts=1, max_surge=1),
    # a successor is up, without a rank, before its predecessor goes
    "handover": Bounds(
        replicas=2, healthy=True, updates=1, crashes=1, failures=1, total=2, max_surge=1, min_ready_s=1.0, hand_over="prepared"
    ),
    "handover-configs": Bounds(replicas=1, healthy=True, updates=1, configs=1, losses=1, max_surge=1, hand_over="prepared"),
    "handover-full": Bounds(
        replicas=2, rooms=2, parking=True, healthy=True, updates=1, crashes=1, max_surge=1, hand_over="prepared"
    ),
    "handover-restarts": Bounds(
        replicas=2, healthy=True, updates=1, crashes=1, restarts=1, total=2, max_surge=1, hand_over="prepared"
    ),
    "handover-again": Bounds(
        replicas=1, healthy=True, updates=2, restarts=1, failures=1, total=2, max_surge=1, hand_over="prepared"
    ),
    "handover-drains": Bounds(
        replicas=1, nodes=2, healthy=True, updates=1, drains=1, max_surge=1, min_ready_s=1.0, hand_over="prepared"
    ),
    "handover-targets": Bounds(
        replicas=2, healthy=True, updates=1, changes=1, stops=1, total=2, max_surge=1, hand_over="prepared"
    ),
    "handover-partition": Bounds(
        replicas=2, healthy=True, updates=1, partitions=1, crashes=1, total=2, partition=1, max_surge=1, hand_over="prepared"
    ),
    # it takes requests before it has a rank, and with a budget of 0 nobody goes before that
    "overlap": Bounds(replicas=2, healthy=True, updates=1, crashes=1, failures=1, total=2, **OVERLAP),
    "overlap-again": Bounds(replicas=2, healthy=True, updates=2, crashes=1, total=2, **OVERLAP),
    "overlap-configs": Bounds(replicas=2, healthy=True, updates=1, configs=1, losses=1, total=2, **OVERLAP),
    "overlap-ready": Bounds(replicas=1, healthy=True, updates=2, crashes=1, total=2, min_ready_s=1.0, **OVERLAP),
    "overlap-full": Bounds(replicas=2, rooms=3, parking=True, healthy=True, updates=2, crashes=1, total=2, **OVERLAP),
    "overlap-no-room": Bounds(
        replicas=2, rooms=2, parking=True, healthy=True, updates=1, crashes=1, progress_deadline_s=5.0, **OVERLAP
    ),
    "overlap-failures": Bounds(replicas=2, healthy=True, updates=1, failures=2, max_start_failures=1, total=2, **OVERLAP),
    "overlap-restarts": Bounds(replicas=2, healthy=True, updates=1, crashes=1, restarts=1, total=2, **OVERLAP),
    "overlap-drains": Bounds(replicas=1, nodes=2, healthy=True, updates=1, drains=1, **OVERLAP),
    "overlap-targets": Bounds(replicas=2, healthy=True, updates=1, changes=1, replacements=1, total=2, **OVERLAP),
    "overlap-partition": Bounds(replicas=2, healthy=True, updates=1, partitions=1, crashes=1, total=2, partition=1, **OVERLAP),
    # room for fewer than are wanted, from the start or after a loss
    "scarce": Bounds(
        replicas=2,
        nodes=2,
        rooms=1,
        parking=True,
        healthy=True,
        node_losses=1,
        room_changes=1,
        crashes=1,
        total=2,
        scarcity_after_s=2.0,
    ),
    "scarce-starting": Bounds(replicas=3, rooms=2, parking=True, failures=1, crashes=1, total=1, scarcity_after_s=2.0),
    "scarce-nodes": Bounds(
        replicas=3, nodes=3, rooms=1, parking=True, healthy=True, node_losses=1, room_changes=1, scarcity_after_s=2.0
    ),
    "scarce-updates": Bounds(
        replicas=2, rooms=1, parking=True, updates=1, changes=1, total=1, max_surge=1, scarcity_after_s=2.0
    ),
    "scarce-restarts": Bounds(replicas=3, rooms=2, parking=True, restarts=1, scarcity_after_s=2.0),
    "scarce-slow": Bounds(
        replicas=2, nodes=2, rooms=1, parking=True, healthy=True, crashes=1, delays=3, total=4, scarcity_after_s=2.0
    ),
    "scarce-packed": Bounds(replicas=2, nodes=2, rooms=1, healthy=True, node_losses=1, room_changes=1, scarcity_after_s=2.0),
    # an update that makes no progress, for a while or for good
    "stalled": Bounds(
        replicas=2, nodes=1, rooms=2, parking=True, healthy=True, updates=1, room_changes=1, crashes=1, progress_deadline_s=2.0
    ),
    "stalled-rollback": Bounds(
        replicas=2, healthy=True, updates=1, failures=1, delays=1, total=2, rollback=True, progress_deadline_s=1.0
    ),
    "stalled-partition": Bounds(replicas=2, healthy=True, updates=1, partitions=1, delays=1, progress_deadline_s=1.0, total=3),
    "stalled-restarts": Bounds(
        replicas=2, rooms=1, parking=True, restarts=1, deletes=1, total=2, scarcity_after_s=2.0, progress_deadline_s=4.0
    ),
    # what runs dies again and again
    "configs-rolling": Bounds(replicas=3, healthy=True, configs=1, failures=1, crashes=1, total=2, max_unavailable=1),
    "configs-at-once": Bounds(replicas=2, healthy=True, configs=2, failures=1, config_rollout="at_once"),
    "configs-rolled-back": Bounds(
        replicas=2,
        healthy=True,
        configs=1,
        failures=2,
        restarts=1,
        total=3,
        max_start_failures=1,
        rollback=True,
        min_ready_s=1.0,
    ),
    "crash-loop": Bounds(replicas=2, healthy=True, crashes=3, suspicions=1, total=3),
    "min-ready-first": Bounds(replicas=2, changes=1, crashes=1, total=2, max_start_failures=1, min_ready_s=1.0),
    "min-ready": Bounds(replicas=2, healthy=True, updates=1, crashes=2, min_ready_s=1.0),
    "min-ready-configs": Bounds(
        replicas=2, healthy=True, configs=1, updates=1, failures=2, rollback=True, total=4, min_ready_s=1.0
    ),
    "min-ready-served": Bounds(replicas=1, changes=3, crashes=1, suspicions=1, total=4, max_start_failures=1, min_ready_s=2.0),
    "min-ready-restarts": Bounds(replicas=2, healthy=True, updates=1, crashes=1, restarts=1, min_ready_s=1.0),
    # who is not ready for a while
    "unready": Bounds(replicas=2, healthy=True, unreadies=2, crashes=1, restarts=1, total=2),
    "unready-starting": Bounds(replicas=1, unreadies=2, delays=1, restarts=1, total=3),
    "unready-updates": Bounds(replicas=2, healthy=True, unreadies=1, updates=1, max_unavailable=1),
    "unready-configs": Bounds(replicas=1, healthy=True, unreadies=2, configs=1, min_ready_s=1.0),
    "unready-handover": Bounds(
        replicas=2, healthy=True, unreadies=1, updates=1, failures=1, total=3, max_surge=1, hand_over="prepared"
    ),
    "unready-overlap": Bounds(replicas=1, healthy=True, unreadies=2, updates=1, restarts=1, total=3, **OVERLAP),
    "unready-drains": Bounds(replicas=2, nodes=2, healthy=True, unreadies=1, drains=1),
    # nodes that are cordoned, drained, or to be lost at a time that is known
    "cordons": Bounds(replicas=2, nodes=2, healthy=True, cordons=1, crashes=1, changes=1, total=2),
    "cordons-starting": Bounds(replicas=2, nodes=2, cordons=1),
    "drains": Bounds(replicas=2, nodes=2, healthy=True, drains=1, crashes=1),
    "drain-starting": Bounds(replicas=2, nodes=2, drains=1),
    "drain-deadline": Bounds(replicas=2, nodes=2, healthy=True, notices=1, delays=1),
    "drain-deadline-full": Bounds(replicas=2, nodes=2, rooms=1, parking=True, healthy=True, notices=1, crashes=1, total=2),
    "drain-restart": Bounds(replicas=2, nodes=2, healthy=True, notices=1, restarts=1),
    "drain-update": Bounds(replicas=1, nodes=2, healthy=True, drains=1, updates=1),
    "drain-update-full": Bounds(replicas=2, nodes=2, rooms=1, parking=True, healthy=True, drains=1, updates=1),
    "drain-failed": Bounds(replicas=1, nodes=2, healthy=True, drains=1, updates=1, failures=1, max_start_failures=1, total=3),
    "drain-packed": Bounds(replicas=2, nodes=2, rooms=2, healthy=True, drains=1, changes=1),
    "drain-losses": Bounds(replicas=1, nodes=2, healthy=True, drains=1, node_losses=1),
    "drain-partition": Bounds(
        replicas=2, nodes=2, rooms=1, parking=True, healthy=True, drains=1, updates=1, partitions=1, partition=1, total=3
    ),
    "drain-token": Bounds(replicas=2, nodes=2, rooms=1, parking=True, healthy=True, drains=1, renewals=1, restarts=1, total=2),
    "replacements": Bounds(replicas=2, nodes=2, healthy=True, replacements=1, drains=1, crashes=1, total=2),
    "forget": Bounds(replicas=2, nodes=2, healthy=True, node_losses=2, node_memory_s=1.0, crashes=1, total=2),
}

DEEP: dict[str, Bounds] = {
    # minutes to an hour each
    "ends": Bounds(replicas=1, configs=1, exits=1, failures=1, node_losses=1, restarts=1, repeats=1, total=3),
    "groups": Bounds(replicas=1, bundles=2, nodes=2, healthy=True, mappings=2, bundle_losses=1, node_losses=1, total=3),
    "crashes": Bounds(replicas=3, nodes=2, healthy=True, crashes=2, node_losses=1, total=2),
    "placements": Bounds(replicas=2, bundles=2, healthy=True, mappings=1, bundle_losses=1, restarts=1, total=3),
    "rooms": Bounds(replicas=2, nodes=2, rooms=2, healthy=True, room_changes=1, changes=1, node_losses=1, crashes=1, total=2),
    # hours each
    "restarts": Bounds(replicas=3, nodes=2, healthy=True, changes=1, restarts=2, crashes=1, total=3),
    "messages": Bounds(replicas=3, nodes=2, start=2, changes=1, losses=1, repeats=1, delays=1, crashes=1, total=3),
    "updates": Bounds(replicas=3, healthy=True, updates=2, max_surge=1, failures=2, rollback=True, restarts=1, total=4),
    "duplicates": Bounds(replicas=3, nodes=3, healthy=True, duplicates=1, restarts=1, changes=1, crashes=1, total=3),
    "targets": Bounds(replicas=5, nodes=2, start=3, healthy=True, changes=2, compaction="immediate", crashes=1, total=3),
    "configs": Bounds(replicas=2, nodes=2, configs=2, updates=1, failures=1, restarts=1, delays=1, total=4),
    "nodes": Bounds(replicas=4, nodes=3, healthy=True, node_losses=2, restarts=1, delays=1, changes=1, total=3),
    "everything": Bounds(
        replicas=2,
        nodes=2,
        changes=2,
        updates=1,
        configs=1,
        stops=1,
        deletes=1,
        crashes=2,
        node_losses=1,
        failures=2,
        suspicions=1,
        restarts=2,
        duplicates=1,
        losses=1,
        repeats=1,
        delays=2,
        total=3,
        max_surge=1,
    ),
}
