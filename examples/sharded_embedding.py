"""An embedding table that is sharded over replicas by rank, and answers correctly while replicas come, go and crash.

    python examples/sharded_embedding.py            # or: rankcore run examples/sharded_embedding.py:app

Shard r of N holds the rows r, r + N, r + 2N, ... of a table in a file. A caller asks all shards and puts their rows together;
rows that nobody holds just now (their replica is being replaced, or the table is being resharded) it asks for again. So an
answer may take longer during a change, and is never wrong. A process group of all shards adds up how many rows they hold.
"""

import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from executors import ray_gpu as serve

ROWS, COLUMNS = 10_000, 16
TABLE = Path(tempfile.gettempdir()) / f"rankcore-embedding-{os.getuid()}.pt"


@serve.deployment(num_replicas=4, ray_actor_options={"num_cpus": 0}, victims="highest_rank")
class EmbeddingShard:
    def __init__(self):
        torch.set_num_threads(1)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.shard_of = None  # (rank, world size) that the rows are for
        self.rows = None
        self.rows_in_group = 0
        threading.Thread(target=self.keep_group, daemon=True).start()

    def reconfigure(self, user_config, rank):
        """The rank is new, or the table."""
        self.table, self.shard_of = user_config["table"], None
        self.reshard()

    def reshard(self):
        """Hold the rows of the present rank and world size; a change of the world size alone calls no user code."""
        context = serve.get_replica_context()
        wanted = context.rank.rank, context.world_size
        if self.shard_of != wanted:
            rank, world_size = wanted
            table = torch.load(self.table, mmap=True, weights_only=True)
            self.rows = table[rank::world_size].to(self.device, copy=True)
            self.shard_of = wanted

    def lookup(self, ids):
        """The rows among these that this shard holds, by id."""
        self.reshard()
        rank, world_size = self.shard_of
        mine = [each for each in ids if each % world_size == rank]
        held = self.rows[torch.tensor([each // world_size for each in mine], dtype=torch.long, device=self.device)]
        return dict(zip(mine, held.cpu(), strict=True))

    def counted(self):
        """How many rows all shards hold together, as the newest process group has added them up."""
        return self.rows_in_group

    def keep_group(self):
        """Be in the process group of all shards, whoever they are."""
        while True:
            try:
                serve.ensure_process_group()
                context = serve.get_replica_context()
                count = torch.tensor(len(range(context.rank.rank, ROWS, context.world_size)), device=self.device)
                dist.all_reduce(count)
                self.rows_in_group = int(count)
            except (serve.RayExecutorError, RuntimeError):
                continue  # somebody left while it was formed: there will be another
            serve.wait_for_world_change()


def write_table(path=TABLE):
    """The table, and its file."""
    table = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(7))
    torch.save(table, path)
    return table


def embed(handle, ids, timeout_s=60.0):
    """The rows of these ids, from whichever shards hold them."""
    found, deadline = {}, time.monotonic() + timeout_s
    while missing := [each for each in ids if each not in found]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody has held rows {missing[:5]} for {timeout_s:g} s")
        answers = [handle.lookup.remote(missing) for _ in range(4)]
        for answer in answers:
            try:
                found.update(answer.result(timeout_s=timeout_s))
            except serve.RayExecutorError:
                continue  # this shard is gone: its replacement will answer
    return torch.stack([found[each] for each in ids])


def app():
    """What `rankcore run` deploys."""
    write_table()
    return EmbeddingShard.options(user_config={"table": str(TABLE)}).bind()


def main():
    handle = serve.run(app(), route_prefix=None)
    table, ids = torch.load(TABLE, weights_only=True), list(range(0, ROWS, 97))

    def check(when):
        assert torch.equal(embed(handle, ids), table[ids]), f"wrong rows {when}"
        print(f"{len(ids)} rows are right {when}")

    def settle(world_size):
        while True:
            info = serve.status().deployments["EmbeddingShard"]
            if info.status == "HEALTHY" and sorted(info.ranks) == list(range(world_size)):
                return info
            time.sleep(0.05)

    check("with 4 shards")
    serve.scale("EmbeddingShard", 2)
    check("during the downscale to 2")
    victim = next(each for each in settle(2).replicas if each.rank.rank == 1)
    check("with 2 shards")
    os.kill(victim.pid, signal.SIGKILL)
    check("during the crash of rank 1")
    settle(2)
    check("after it")
    while (counted := handle.counted.remote().result()) != ROWS:
        time.sleep(0.05)
    print(f"the process group counts {counted} rows")
    serve.shutdown()


if __name__ == "__main__":
    main()
