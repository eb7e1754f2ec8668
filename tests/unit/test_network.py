"""What the simulated network loses, repeats and reorders, and what it must not lose (section 2.4 of the design)."""

import pytest

from executors.simulator.clock import EventLoop
from executors.simulator.cluster.network import Link, Network
from executors.simulator.load.distributions import Constant, Exponential
from executors.simulator.scenario.hardware import NetworkModel
from executors.simulator.streams import Streams

COUNT = 2_000


class Receiver:
    def __init__(self, **model) -> None:
        self.loop = EventLoop()
        model.setdefault("latency_s", Constant(value=0.5))
        self.network = Network(self.loop, NetworkModel(**model), Streams(7))
        self.link = Link(("test",), "n")
        self.heard: list[tuple[float, int]] = []

    def hear(self, number: int) -> None:
        self.heard.append((self.loop.now, number))

    def run(self) -> list[int]:
        while self.loop.step():
            pass
        return [number for _, number in self.heard]

    def each_second(self, send, **options) -> list[int]:
        for number in range(COUNT):
            self.loop.at(float(number), lambda number=number: send(self.link, self.hear, number, **options))
        return self.run()


def test_a_reliable_network_delivers_each_message_once_after_its_latency():
    receiver = Receiver()
    receiver.network.send(receiver.link, receiver.hear, 1)
    receiver.network.send_kept(receiver.link, receiver.hear, 2)
    receiver.network.send_in_order(receiver.link, receiver.hear, 3)
    receiver.network.submit(receiver.link, receiver.hear, 4)
    receiver.run()
    assert receiver.heard == [(0.0, 4), (0.5, 1), (0.5, 2), (0.5, 3)]
    assert receiver.link.stream is None  # nothing was drawn


@pytest.mark.parametrize("way", ["send", "submit"])
def test_messages_are_lost_and_repeated_as_often_as_the_model_says(way):
    receiver = Receiver(loss=0.3, duplication=0.25)
    heard = receiver.each_second(getattr(receiver.network, way))
    # Each copy is lost on its own: 1.25 copies of which 0.7 arrive, give or take four standard deviations.
    assert len(heard) == pytest.approx(COUNT * 1.25 * 0.7, abs=130)
    assert len(set(heard)) < COUNT


@pytest.mark.parametrize("way", ["send_kept", "send_in_order"])
def test_what_must_not_be_lost_never_is_but_comes_late_twice_and_overtaken(way):
    receiver = Receiver(loss=0.5, duplication=0.25, reorder=0.2, reorder_s=Constant(value=30.0), retry_s=2.0)
    heard = receiver.each_second(getattr(receiver.network, way))
    assert set(heard) == set(range(COUNT))
    assert len(heard) > COUNT
    assert heard != sorted(heard)
    assert receiver.network.outstanding == 0


def test_a_lost_message_is_repeated_every_so_often_until_it_arrives():
    receiver = Receiver(loss=0.5, retry_s=2.0)
    receiver.each_second(receiver.network.send_kept)
    late = [at - number - 0.5 for at, number in receiver.heard]
    assert {each % 2.0 for each in late} == {0.0}
    assert sum(late) / COUNT == pytest.approx(2.0, abs=0.25)  # one repetition on average


def test_nothing_overtakes_on_a_steady_connection_and_nothing_comes_twice():
    receiver = Receiver(loss=0.5, duplication=0.5, reorder=0.5, latency_s=Exponential(mean=3.0))
    assert receiver.each_second(receiver.network.send_in_order, steady=True) == list(range(COUNT))


def test_what_is_sent_at_one_instant_on_a_connection_never_changes_its_order():
    receiver = Receiver(loss=0.3, reorder=0.5, latency_s=Exponential(mean=3.0))
    for number in range(COUNT):
        receiver.network.send_in_order(receiver.link, receiver.hear, number)
    assert receiver.run() == list(range(COUNT))


def test_what_is_on_its_way_when_a_node_is_cut_off_is_lost_unless_it_must_not_be():
    receiver = Receiver(retry_s=2.0)
    receiver.network.send(receiver.link, receiver.hear, 1)
    receiver.network.send_kept(receiver.link, receiver.hear, 2)
    receiver.loop.at(0.25, receiver.network.cut, "n")
    receiver.loop.at(1.0, receiver.network.send, receiver.link, receiver.hear, 3)
    receiver.loop.at(1.0, receiver.network.send_kept, receiver.link, receiver.hear, 4)
    receiver.loop.at(1.0, receiver.network.send, Link(("other",), "m"), receiver.hear, 5)
    receiver.loop.at(5.25, receiver.network.mend, "n")
    receiver.run()
    # 2 is repeated at 2, 4 and 6; 4 at 3, 5 and 7
    assert receiver.heard == [(1.5, 5), (6.5, 2), (7.5, 4)]


def test_what_a_node_could_not_say_is_said_for_it_once_it_is_written_off():
    receiver = Receiver()
    receiver.network.cut("n")
    receiver.network.send_kept(receiver.link, receiver.hear, 1)
    receiver.loop.at(10.0, receiver.network.write_off, "n")
    receiver.run()
    assert receiver.heard == [(10.5, 1)]


def test_links_draw_from_streams_of_their_own():
    def times(others: int) -> list[float]:
        receiver = Receiver(latency_s=Exponential(mean=1.0))
        for number in range(100):
            for other in range(others):
                receiver.network.send(Link(("other", str(other))), lambda: None)
            receiver.network.send(receiver.link, receiver.hear, number)
        receiver.run()
        return sorted(at for at, _ in receiver.heard)

    assert times(0) == times(3)
