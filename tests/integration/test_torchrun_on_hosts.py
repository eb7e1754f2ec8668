"""Agents of torchrun on hosts of their own, which are namespaces: cables are pulled, and the lease decides (TR8, TR9)."""

import time

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from tests.torchrun_hosts import JobOnHosts, missing

LEASE_S = 4
SOON = ("--lease", str(LEASE_S), "--last-call", "3")
pytestmark = [pytest.mark.night, pytest.mark.skipif(bool(missing()), reason=str(missing()))]


@pytest.fixture
def job(tmp_path):
    with JobOnHosts(tmp_path, "2:2") as job:
        job.serve(*SOON)
        yield job


def seated(job, *nodes):
    for node in nodes:
        job.agent(node)
    job.until(job.ranks)
    return job.ranks()


def test_who_is_cut_off_has_ended_before_its_rank_is_the_spare_s(job):
    before = seated(job, "a", "b", "s")
    job.parked(1)
    cut = next(node for node, rank in before.items() if rank == 0)
    spare = ({"a", "b", "s"} - {*before}).pop()
    other = ({*before} - {cut}).pop()
    pulled_at = time.time()
    job.cable(cut, "down")
    job.until(lambda: job.ranks().get(spare) == 0)
    assert job.ranks() == {spare: 0, other: 1}
    assert job.alive_until(cut) < job.began_at(spare), "its worker waits in no collective: its agent has ended it"
    assert pulled_at + LEASE_S < job.began_at(spare)
    assert job.agents.pop(cut).wait(30) != 0
    job.cable(cut, "up")
    assert set(job.stop().values()) == {0}


def test_a_coordinator_that_is_cut_off_for_less_than_the_lease_is_noticed_by_no_worker(job):
    before = seated(job, "a", "b")
    for _ in range(3):
        job.cable("coordinator", "down")
        time.sleep(LEASE_S / 4)
        job.cable("coordinator", "up")
        time.sleep(LEASE_S)
    assert job.ranks() == before
    assert len(job.said()) == len(before), "no worker was started again"
    assert set(job.stop().values()) == {0}


def test_a_coordinator_that_is_cut_off_for_longer_has_all_agents_end(job):
    seated(job, "a", "b")
    pulled_at = time.time()
    job.cable("coordinator", "down")
    assert all(process.wait(60) != 0 for process in job.agents.values())
    last = max(job.alive_until(node) for node in job.agents)
    assert last < pulled_at + LEASE_S + 5, "nobody lives on when a coordinator that had lived would give ranks away"
