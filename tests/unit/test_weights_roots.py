"""No version is answered by two sets of bytes: every byte that is read is part of what all who serve it agree on."""

import asyncio
import os
import random
import threading
import time

import pytest
import torch

from executors.torch_weights import (
    Level,
    LocalAgreement,
    WeightsChangedError,
    WeightsFileError,
    contents,
    declared_in,
    look_at,
    moves,
)
from executors.torch_weights.layout import block_of, split, windows
from tests.weights_worlds import node, saved, tensors

NUMBERS = 20_000
SIZE = -(-4 * NUMBERS // 256) * 256


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """What is sampled of large models is sampled of small ones."""
    monkeypatch.setattr(moves, "CHUNK_BYTES", 4096)
    monkeypatch.setattr(contents, "WHOLE_BYTES", 1024)
    monkeypatch.setattr(contents, "SAMPLE_BYTES", 64)


def one(path, unseen=0):
    """A tensor, and a number in it that no sample sees. Its time of change is always the same."""
    content = torch.arange(NUMBERS, dtype=torch.int32)
    content[NUMBERS // 3] = unseen
    saved(path, {"w": content})
    os.utime(path, ns=(10**18, 10**18))
    return path


def seen(weights):
    return int(weights.tensors["w"][NUMBERS // 3])


def expected(path):
    return declared_in(look_at(path).declared())


def test_what_no_sample_sees_is_seen_by_the_load_and_nothing_of_it_is_taken(tmp_path):
    path, agreed, place = one(tmp_path / "m.safetensors"), LocalAgreement(), node(tmp_path)
    declared = expected(path)
    first, second = (place.weights(path, expected=declared, agreed=agreed) for _ in range(2))

    async def go():
        await first.from_cache()
        one(path, unseen=7)
        assert expected(path) == declared, "the samples are the same"
        free = place.free
        with pytest.raises(WeightsChangedError, match=r"root .*found root .*delete it first"):
            await second.from_cache()
        assert (second.level, place.free, seen(first)) == (Level.COLD, free, 0)
        with pytest.raises(WeightsChangedError):
            await second.to_cache()
        assert (second.level, place.store.used_bytes()) == (Level.COLD, 0)
        one(path)
        await second.from_cache()
        assert seen(second) == 0
        await first.aclose()
        await second.aclose()

    asyncio.run(go())


def test_a_copy_is_found_by_its_root_and_by_nobody_who_has_not_agreed_on_it(tmp_path):
    path, place = one(tmp_path / "m.safetensors"), node(tmp_path)
    former, newer = LocalAgreement(), LocalAgreement()
    first, second = (place.weights(path, agreed=former) for _ in range(2))

    async def go():
        await first.from_cache()
        await first.to_cache()
        one(path, unseen=7)
        moved = await second.from_cache()  # the copy, though its file is another one now
        assert (seen(second), moved.source) == (0, Level.COLD)
        third = place.weights(path, agreed=newer)
        await third.from_cache()
        assert seen(third) == 7
        await third.to_cache()
        await second.to_cache()
        assert place.store.used_bytes() == 2 * (SIZE + 4096)
        for each in (first, second, third):
            await each.from_cache()
        assert [seen(each) for each in (first, second, third)] == [0, 0, 7]
        for each in (first, second, third):
            await each.aclose()

    asyncio.run(go())


def test_a_copy_from_disk_is_shared_once_it_is_known_what_it_is(tmp_path):
    path, place, agreed = one(tmp_path / "m.safetensors"), node(tmp_path), LocalAgreement()
    first, second, third = (place.weights(path, agreed=agreed) for _ in range(3))

    async def go():
        await first.to_cache()
        await second.to_cache()
        await third.to_cache()
        assert place.store.used_bytes() == 2 * (SIZE + 4096), "the first one has what nobody knew yet"
        await third.from_cache()
        assert seen(third) == 0
        for each in (first, second, third):
            await each.aclose()

    asyncio.run(go())
    assert place.store.used_bytes() == 0


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_a_root_is_the_same_however_tensors_are_split(tmp_path, devices):
    path = saved(tmp_path / "m.safetensors", tensors(7))
    place, agreed = node(tmp_path, *[2**20] * 3), LocalAgreement()

    async def go():
        for number in (devices, 1):
            weights = place.weights(path, devices=place.devices[:number], agreed=agreed)
            await weights.from_cache()
            await weights.aclose()

    asyncio.run(go())
    cut = [
        sorted(
            (each.file, each.offset, each.nbytes)
            for group in groups
            for _, _, found in windows(block_of(group), 1000)
            for each in found
        )
        for groups in (split(look_at(path).tensors, devices), [list(look_at(path).tensors)])
    ]
    assert cut[0] == cut[1]


@pytest.mark.parametrize("by_rename", [False, True])
def test_a_writer_in_the_middle_of_loads_of_several_replicas_never_makes_one_version_answer_twice(tmp_path, by_rename):
    path, agreed, place = one(tmp_path / "m.safetensors"), LocalAgreement(), node(tmp_path)
    declared, draws, over = expected(path), random.Random(5), threading.Event()
    variants = [one(tmp_path / f"{number}.safetensors", number).read_bytes() for number in range(3)]
    answers, failures = set(), 0

    def write():
        while not over.is_set():
            content = draws.choice(variants)
            target = tmp_path / "new" if by_rename else path
            with target.open("wb" if by_rename else "r+b") as file:
                file.write(content)
            os.utime(target, ns=(10**18, 10**18))
            if by_rename:
                target.replace(path)

    async def load(replica):
        nonlocal failures
        mine, limit_at = 0, time.monotonic() + 60.0
        while mine < 12 or (not (answers and failures) and time.monotonic() < limit_at):
            mine += 1
            try:
                await replica.from_cache()
            except (WeightsChangedError, WeightsFileError):
                failures += 1
                continue
            answers.add(bytes(replica.tensors["w"].numpy().tobytes()))
            await (replica.to_cache() if draws.random() < 0.3 else replica.drop())

    async def go():
        replicas = [place.weights(path, expected=declared, agreed=agreed) for _ in range(3)]
        writer.start()
        try:
            await asyncio.gather(*map(load, replicas))
        finally:
            over.set()
            writer.join()
        for each in replicas:
            await each.aclose()

    writer = threading.Thread(target=write)
    asyncio.run(go())
    assert len(answers) == 1, "none at all would show nothing"
    assert failures, "the writer has been in nobody's way"
    assert (place.free, place.store.used_bytes()) == ([2**20], 0)
