"""`rankcore controller-health`: the fields of Ray Serve's, and what they count here."""

import asyncio

import pytest

pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")

from executors.ray_gpu.loop_health import NOT_MEASURED, SLEEP_S, ControllerHealth


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def read(health):
    async def on_a_loop():
        return health.read()

    return asyncio.run(on_a_loop())


def test_it_has_all_fields_of_ray_serves_and_is_one_of_its_metrics():
    from ray.serve.schema import ControllerHealthMetrics

    found = read(ControllerHealth())
    assert set(found) == set(ControllerHealthMetrics.model_fields)
    ControllerHealthMetrics.model_validate(found)
    assert {name for name, value in found.items() if value is None} == set(NOT_MEASURED)
    assert found["process_memory_mb"] > 1.0


def test_steps_and_reports_are_counted_and_timed():
    clock = Clock()
    health = ControllerHealth(clock, lambda: clock.now + 1_000_000.0)
    clock.now = 110.0
    health.step(0.002)
    health.step(0.004)
    health.report(0.5)
    clock.now = 120.0
    found = read(health)
    assert (found["uptime_s"], found["num_control_loops"], found["loops_per_second"]) == (20.0, 2, 0.1)
    assert found["loop_duration_s"] == pytest.approx({"mean": 0.003, "std": 0.001, "min": 0.002, "max": 0.004})
    assert (found["controller_start_time"], found["last_control_loop_time"], found["timestamp"]) == (
        1_000_100.0,
        1_000_110.0,
        1_000_120.0,
    )
    assert (found["handle_reports_received"], found["ingest_reports_received"]) == (1, 1)
    assert found["handle_ingest_duration_ms"]["max"] == 500.0
    assert found["ingest_cpu_fraction"] == pytest.approx(0.05)


def test_a_loop_that_is_held_up_is_late(monkeypatch):
    clock = Clock()
    health = ControllerHealth(clock)

    async def held_up():
        slept = asyncio.Event()

        async def sleep(seconds):
            if slept.is_set():
                await asyncio.Event().wait()
            assert seconds == SLEEP_S
            clock.now += seconds + 0.75
            slept.set()

        monkeypatch.setattr("executors.ray_gpu.loop_health.asyncio.sleep", sleep)
        health.begin()
        await slept.wait()
        return health.read()

    found = asyncio.run(held_up())
    assert (found["last_sleep_duration_s"], found["event_loop_delay_s"]) == (SLEEP_S + 0.75, 0.75)
