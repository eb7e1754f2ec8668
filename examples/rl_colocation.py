"""Training and inference on the very same bundles: replicas of a policy read the weights that trainers write, and take turns.

    python examples/rl_colocation.py

One placement group has four bundles, each with one GPU where there are GPUs. On every bundle a trainer holds its shard of the
weights. The deployment has two replicas of two bundles each: rank 0 stands on bundle 0, rank 1 on bundle 2, and each starts a
worker on both of its bundles, which computes with the shard of the trainer that is there. Weights change hands once, as a
handle of a few hundred bytes (shared memory on CPUs, CUDA IPC on GPUs); from then on a step of a trainer is seen by the worker
beside it, and nothing passes through the object store. While trainers step the replicas sleep: calls wait until they wake.

On CPUs the memory has no name (`memfd_create` of Linux): a worker opens the descriptor that the trainer has. It ends with the
last process that has it, however that ends, so that nothing is left in /dev/shm for anybody to clear away.
"""

import asyncio
import base64
import mmap
import os
import pickle
import signal
import sys
import time
from multiprocessing.reduction import ForkingPickler

import ray
import torch
import torch.multiprocessing
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from executors import ray_gpu as serve

OUTPUTS, INPUTS = 256, 1024  # a megabyte of weights
MAPPING = {0: [0, 1], 1: [2, 3]}
BUNDLES = 4
CPUS_PER_BUNDLE = 0.5
HALF = OUTPUTS // 2


def torch_is_ready():
    """What every process that shares tensors does first."""
    torch.set_num_threads(1)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def memory_of(descriptor):
    """Which memory it is: two processes that say the same read and write the same bytes."""
    if descriptor is None:
        return "cuda"  # the handle is opened once, and the driver maps it where it likes
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def tensor_in(descriptor):
    """The weights of one bundle in shared memory."""
    return torch.frombuffer(mmap.mmap(descriptor, 0), dtype=torch.float32).reshape(HALF, INPUTS)


class Trainer:
    """Holds the weights of one bundle, and moves them towards what they should be."""

    def __init__(self, bundle):
        self.device = torch_is_ready()
        half = bundle % 2
        wanted = torch.linspace(-1, 1, OUTPUTS * INPUTS).reshape(OUTPUTS, INPUTS)
        self.wanted = wanted[half * HALF : (half + 1) * HALF].to(self.device)
        self.descriptor = None
        if self.device.type == "cuda":
            self.weights = torch.zeros(HALF, INPUTS, device=self.device).requires_grad_()
        else:
            self.descriptor = os.memfd_create("weights")
            os.truncate(self.descriptor, HALF * INPUTS * 4)
            self.weights = tensor_in(self.descriptor).requires_grad_()
        self.optimizer = torch.optim.SGD([self.weights], lr=HALF * INPUTS / 4)

    def hand_over(self):
        """A handle of the weights, as text."""
        if self.descriptor is not None:
            return f"/proc/{os.getpid()}/fd/{self.descriptor}"
        return base64.b64encode(ForkingPickler.dumps(self.weights.detach())).decode()

    def step(self):
        """One step of training, in place; returns the loss before it."""
        loss = (self.weights - self.wanted).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def memory(self):
        return memory_of(self.descriptor)


class Worker:
    """One half of a replica's computation, on one bundle."""

    def __init__(self):
        self.device = torch_is_ready()
        self.handle = self.weights = self.descriptor = None

    def attach(self, handle):
        if handle == self.handle:
            return
        if self.device.type == "cuda":
            self.weights = pickle.loads(base64.b64decode(handle))
        else:
            self.descriptor = os.open(handle, os.O_RDWR)
            self.weights = tensor_in(self.descriptor)
        self.handle = handle

    def forward(self, inputs):
        with torch.no_grad():
            return (self.weights @ torch.tensor(inputs, device=self.device)).cpu()

    def memory(self):
        return memory_of(self.descriptor), self.weights.data_ptr()


@serve.deployment(ray_actor_options={"num_cpus": 0.2 * CPUS_PER_BUNDLE})
class Policy:
    """A replica of two workers. `user_config` says whose weights to use, and whether to sleep."""

    def __init__(self, group):
        self.bundles = serve.get_replica_context().bundle_indices
        self.workers = [ray.remote(Worker).options(**on_bundle(group, bundle)).remote() for bundle in self.bundles]
        self.awake = asyncio.Event()

    async def reconfigure(self, user_config):
        if user_config["asleep"]:
            self.awake.clear()
            return
        handles = [user_config["weights"][bundle] for bundle in self.bundles]
        await asyncio.gather(*(worker.attach.remote(handle) for worker, handle in zip(self.workers, handles, strict=True)))
        self.awake.set()

    async def __call__(self, inputs):
        await self.awake.wait()
        return torch.cat(await asyncio.gather(*(worker.forward.remote(inputs) for worker in self.workers)))

    async def memory(self):
        """By bundle: which memory its worker computes with."""
        return dict(zip(self.bundles, await asyncio.gather(*(worker.memory.remote() for worker in self.workers)), strict=True))


def on_bundle(group, bundle):
    """Options of an actor that takes its share of one bundle: what trainers and workers have in common."""
    return {
        "num_cpus": 0.4 * CPUS_PER_BUNDLE,
        "num_gpus": 0.4 if torch.cuda.is_available() else 0,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle),
    }


def settled():
    """Wait until every replica has done what it was told, and say how they are."""
    while True:
        info = serve.status().deployments["Policy"]
        if info.status == "HEALTHY" and all(replica.state == "RUNNING" for replica in info.replicas):
            return info
        time.sleep(0.05)


def everywhere(method):
    """The answers of all replicas, as one dictionary."""
    found = {}
    while len(found) < BUNDLES:
        found.update(method.remote().result(timeout_s=60))
    return found


def main():
    serve.start(proxy_location="Disabled")
    try:
        train_and_serve()
    finally:
        serve.shutdown(timeout_s=5.0)


def train_and_serve():
    gpus = {"GPU": 1} if torch.cuda.is_available() else {}
    group = placement_group([{"CPU": CPUS_PER_BUNDLE, **gpus}] * BUNDLES, name="pg-rl")
    assert group.wait(60), f"this cluster has no room for {BUNDLES} bundles of {group.bundle_specs[0]}"
    trainers = [ray.remote(Trainer).options(**on_bundle(group, bundle)).remote(bundle) for bundle in range(BUNDLES)]
    config = {"asleep": False, "weights": ray.get([trainer.hand_over.remote() for trainer in trainers])}
    placement = serve.StaticPlacementConfig(placement_group=group, replica_bundle_mapping=MAPPING)
    policy = Policy.options(_placement_info=placement, user_config=config).bind(group)
    handle = serve.run(policy, route_prefix=None)
    print(f"{BUNDLES} trainers and 2 replicas with 2 workers each stand on the {BUNDLES} bundles of pg-rl")

    inputs = torch.ones(INPUTS)
    memory = everywhere(handle.memory)
    shared = ray.get([trainer.memory.remote() for trainer in trainers])
    assert all(memory[bundle][0] == shared[bundle] for bundle in range(BUNDLES)), "weights were copied"
    for step in range(1, 4):
        serve.update("Policy", user_config={**config, "asleep": True})
        settled()
        waiting = handle.remote(inputs.tolist())  # nobody answers before the weights are whole again
        before = sum(ray.get([trainer.step.remote() for trainer in trainers])) / BUNDLES
        serve.update("Policy", user_config=config)
        settled()
        expected = expected_of(step, inputs)
        assert torch.allclose(waiting.result(timeout_s=60), expected, atol=1e-3), "the answer is not of the new weights"
        assert everywhere(handle.memory) == memory, "weights have moved"
        print(f"step {step}: loss was {before:.4f}; the answer comes from the new weights, which nobody copied")

    victim = next(replica for replica in settled().replicas if replica.rank.rank == 1)
    os.kill(victim.pid, signal.SIGKILL)
    while settled().replicas[1].replica_id == victim.replica_id:
        time.sleep(0.05)
    after = everywhere(handle.memory)
    assert {bundle: place[0] for bundle, place in after.items()} == {bundle: place[0] for bundle, place in memory.items()}
    assert torch.allclose(handle.remote(inputs.tolist()).result(timeout_s=60), expected, atol=1e-3)
    print("rank 1 crashed, and is back on its bundles with the weights of step 3")
    serve.delete("Policy")
    for trainer in trainers:
        ray.kill(trainer)
    remove_placement_group(group)


def expected_of(steps, inputs):
    """What the policy answers after so many steps: each halves the distance to what is wanted."""
    wanted = torch.linspace(-1, 1, OUTPUTS * INPUTS).reshape(OUTPUTS, INPUTS)
    return (wanted * (1 - 0.5**steps)) @ inputs


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
