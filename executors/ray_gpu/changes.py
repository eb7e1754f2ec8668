"""What the core commands about ranks and user_config, as user code's side is told it."""

from executors.ray_gpu.messages import NO_RANKS, Change
from rankcore.frozen import thaw_json
from rankcore.replica.messages import ReplicaChange
from rankcore.spec import config_id_of

NO_CONFIG = config_id_of(None)


def change_of(command: ReplicaChange) -> Change:
    """The same in plain numbers, dicts and lists."""
    ranks = command.rank
    return Change(
        epoch=command.epoch,
        revision=command.revision,
        initialize=command.initialize,
        ranks=NO_RANKS if ranks is None else (ranks.rank, ranks.node_rank, ranks.local_rank),
        world_size=command.world_size,
        config_id=command.config_id,
        user_config=thaw_json(command.user_config),
        keeps_config=command.user_config is None and command.config_id != NO_CONFIG,
    )
