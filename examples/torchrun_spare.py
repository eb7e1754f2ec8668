"""Three agents of torchrun and a spare, on this machine: rank 0's agent is killed, and the spare goes on as rank 0.

    python examples/torchrun_spare.py

Each agent has one worker. They train a line through noisy points with gloo, each on its own shard, which it has by its rank;
a checkpoint has the step and the weights. All of it is stock torchrun but the backend's name.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import entry_points
from pathlib import Path

STEPS = 240
KILL_AT_STEP = 60
PATIENCE_S = 120.0
PORT = 29_471


def train(folder: Path) -> None:
    """A worker: as many steps as are left, each told with its loss."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    shard = torch.linspace(-1, 1, 300)[rank::world]
    wanted = 3 * shard + 1 + 0.1 * torch.sin(40 * shard)
    checkpoint = folder / "checkpoint.pt"
    state = torch.load(checkpoint) if checkpoint.exists() else {"step": torch.tensor(0), "weights": torch.zeros(2)}
    for tensor in state.values():
        dist.broadcast(tensor, 0)  # whatever each has read, all go on from rank 0's
    step, weights = int(state["step"]), state["weights"].requires_grad_()
    while step < STEPS:
        loss = ((weights[0] * shard + weights[1] - wanted) ** 2).mean()
        (gradient,) = torch.autograd.grad(loss, weights)
        both = torch.cat([gradient, loss.detach().reshape(1)])
        dist.all_reduce(both)
        with torch.no_grad():
            weights -= 0.03 * both[:2] / world
        step += 1
        if rank == 0:
            torch.save({"step": torch.tensor(step), "weights": weights.detach()}, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").rename(checkpoint)
        told = {"step": step, "loss": float(both[2]) / world, "rank": rank, "node": os.environ["NODE"], "at_s": time.time()}
        with (folder / "said.jsonl").open("a") as file:
            file.write(json.dumps(told) + "\n")
        time.sleep(0.05)
    dist.destroy_process_group()


def environment(folder: Path) -> dict[str, str]:
    """With the entry point that torchrun looks for, also where this checkout is not installed."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    if "rankcore" not in {each.name for each in entry_points(group="torchrun.handlers")}:
        info = folder / "entry" / "rankcore_checkout-0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rankcore-checkout\nVersion: 0\n")
        (info / "entry_points.txt").write_text("[torchrun.handlers]\nrankcore = executors.torchrun.entry:rankcore\n")
        paths.append(str(info.parent))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}


def said(folder: Path) -> list[dict[str, float | int | str]]:
    """What workers have told."""
    path = folder / "said.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def until(folder: Path, step: int) -> None:
    """Wait until rank 0 has told of a step."""
    end_s = time.monotonic() + PATIENCE_S
    while not any(line["step"] >= step for line in said(folder) if line["rank"] == 0):
        if time.monotonic() > end_s:
            logs = "\n".join(path.read_text()[-1_500:] for path in folder.glob("*.log"))
            raise SystemExit(f"step {step} is not there after {PATIENCE_S:g} s:\n{logs}")
        time.sleep(0.05)


def main() -> None:
    """Start all, kill rank 0's agent, and print what came of it."""
    with tempfile.TemporaryDirectory() as name:
        folder, processes = Path(name), {}
        env = environment(folder)

        def start(node: str, *command: str) -> None:
            with (folder / f"{node}.log").open("w") as log:
                processes[node] = subprocess.Popen(
                    [sys.executable, *command], env={**env, "NODE": node}, stdout=log, stderr=log, start_new_session=True
                )

        where = ("--host", "127.0.0.1", "--port", str(PORT))
        start("coordinator", "-m", "executors.cli", "gang", "serve", "--nnodes", "2:3", *where)
        stock = f"--nnodes 2:3 --nproc-per-node 1 --max-restarts 3 --local-addr 127.0.0.1 --rdzv-endpoint 127.0.0.1:{PORT}"
        for node in ("node-a", "node-b", "node-c", "node-d"):
            backend = ("--rdzv-backend", "rankcore", "--rdzv-conf", f"node_id={node},nproc=1")
            start(node, "-m", "torch.distributed.run", *stock.split(), *backend, __file__, "train", str(folder))
        try:
            until(folder, KILL_AT_STEP)
            before = {str(line["node"]): int(line["rank"]) for line in said(folder)[-9:]}
            victim = next(node for node, rank in before.items() if rank == 0)
            print(f"step {KILL_AT_STEP}: the agent of rank 0 on {victim} is killed", flush=True)
            processes[victim].send_signal(signal.SIGKILL)
            killed_s = time.time()
            until(folder, STEPS)
            statuses = {node: process.wait(PATIENCE_S) for node, process in processes.items()}
            report(folder, before, killed_s, statuses)
        finally:
            for process in processes.values():
                process.terminate()


def report(folder: Path, before: dict[str, int], killed_s: float, statuses: dict[str, int]) -> None:
    """Who had which rank, and how the loss went on."""
    later = [line for line in said(folder) if float(line["at_s"]) > killed_s + 1]
    after = {str(line["node"]): int(line["rank"]) for line in later}
    print(f"{min(float(line['at_s']) for line in later) - killed_s:.1f} s later training goes on\n")
    print(f"{'node':<10}{'rank before':<13}{'rank after':<12}exit status of its torchrun")
    for node, status in statuses.items():
        if node != "coordinator":
            print(f"{node:<10}{before.get(node, 'spare')!s:<13}{after.get(node, 'killed')!s:<12}{status}")
    print(f"\n{'step':<7}{'loss':<12}rank 0 is on")
    shown = {line["step"]: line for line in said(folder) if line["rank"] == 0}
    for step in (1, KILL_AT_STEP // 2, KILL_AT_STEP, *range(KILL_AT_STEP + 10, STEPS + 1, (STEPS - KILL_AT_STEP - 10) // 4)):
        if step in shown:
            print(f"{step:<7}{float(shown[step]['loss']):<12.6f}{shown[step]['node']}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(Path(sys.argv[2]))
    else:
        main()
