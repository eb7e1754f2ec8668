"""Futures of other threads, awaited on an event loop: each waiter goes on once, and those of one moment wake the loop once."""

import asyncio
import concurrent.futures
import threading

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.requests.arrivals import until_done

TIMEOUT_S = 120


def awaited(*futures):
    """Waiters on this loop."""
    return asyncio.wait_for(asyncio.gather(*(until_done(future) for future in futures)), TIMEOUT_S)


def test_whoever_waits_goes_on_whatever_the_future_comes_to():
    async def play():
        done, failed, cancelled, early = (concurrent.futures.Future() for _ in range(4))
        early.set_result(1)

        def end():
            done.set_result(1)
            failed.set_exception(ValueError("not this time"))
            cancelled.cancel()

        threading.Thread(target=end).start()
        await awaited(done, failed, cancelled, early)

    asyncio.run(play())


def test_what_is_done_together_wakes_the_loop_once():
    async def play():
        loop, woken = asyncio.get_running_loop(), []
        honest = loop.call_soon_threadsafe

        def counted(callback, *arguments, **options):
            woken.append(callback)
            return honest(callback, *arguments, **options)

        loop.call_soon_threadsafe = counted
        futures = [concurrent.futures.Future() for _ in range(100)]
        waiting = [until_done(future) for future in futures]
        for future in futures:  # nothing else happens on this loop meanwhile
            future.set_result(None)
        await asyncio.gather(*waiting)
        assert len(woken) == 1
        last = concurrent.futures.Future()
        waiter = until_done(last)
        last.set_result(None)
        await waiter
        assert len(woken) == 2, "and what comes later wakes it again"

    asyncio.run(play())


def test_who_waits_no_more_leaves_the_future_and_the_others_as_they_are():
    async def play():
        future = concurrent.futures.Future()
        one, other = until_done(future), until_done(future)
        one.cancel()
        assert not future.cancelled()
        threading.Thread(target=future.set_result, args=(3,)).start()
        await asyncio.wait_for(other, TIMEOUT_S)
        assert future.result(0) == 3

    asyncio.run(play())


def test_what_is_done_after_its_loop_was_closed_harms_nobody():
    futures = [concurrent.futures.Future() for _ in range(2)]

    async def play(future):
        until_done(future)

    asyncio.run(play(futures[0]))
    futures[0].set_result(None)

    async def wait_for_the_other():
        threading.Thread(target=futures[1].set_result, args=(None,)).start()
        await awaited(futures[1])

    asyncio.run(wait_for_the_other())  # on a loop of its own, on the same thread


def test_loops_of_several_threads_do_not_mix():
    futures = [concurrent.futures.Future() for _ in range(20)]
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        barrier = threading.Barrier(21)

        async def wait(future):
            waiting = until_done(future)
            await asyncio.to_thread(barrier.wait)
            await asyncio.wait_for(waiting, TIMEOUT_S)
            return future.result(0)

        running = [pool.submit(asyncio.run, wait(future)) for future in futures]
        barrier.wait()
        for number, future in enumerate(futures):
            future.set_result(number)
        assert [each.result(TIMEOUT_S) for each in running] == list(range(20))
