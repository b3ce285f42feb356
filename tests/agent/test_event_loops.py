"""A coroutine in a thread of its own: results, errors, stopping, and an interrupt of the thread that waits."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest
from waiting import HANG, PATIENCE

from ctxkit.agent import BackgroundTask, EventLoopClientBase, run_coroutine


async def slow(log: list):
    try:
        await asyncio.sleep(HANG)
    finally:
        log.append("left whole")


def test_a_result_and_an_error_come_back():
    async def good():
        return 7

    async def bad():
        raise ValueError("no")

    assert run_coroutine(good()) == 7
    with pytest.raises(ValueError, match="no"):
        run_coroutine(bad())


def test_it_runs_where_a_loop_runs_already():
    async def inner():
        return "inner"

    async def outer():
        return run_coroutine(inner())

    assert asyncio.run(outer()) == "inner"


def test_it_can_be_stopped():
    log = []
    handle = BackgroundTask(slow(log))
    assert handle.state == "running"
    with pytest.raises(TimeoutError):
        handle.result(0.1)
    handle.stop()
    assert handle.wait(PATIENCE)
    assert handle.state == "stopped"
    assert log == ["left whole"]
    with pytest.raises(asyncio.CancelledError):
        handle.result()


def test_a_result_does_not_wait_for_a_thread_that_the_coroutine_left():
    release = threading.Event()

    async def leave_a_thread():
        asyncio.get_running_loop().run_in_executor(None, release.wait, PATIENCE)
        return 7

    handle = BackgroundTask(leave_a_thread())
    try:
        assert handle.result(PATIENCE / 2) == 7
        assert (handle.state, release.is_set()) == ("done", False)
    finally:
        release.set()


def test_an_interrupt_cancels_and_waits_for_the_end():
    code = """
        import asyncio
        import signal
        from ctxkit.agent import run_coroutine as run
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may ignore it: nohup make test &
        async def slow():
            try:
                print("begun", flush=True)
                await asyncio.sleep(300)
            finally:
                await asyncio.sleep(0.3)
                print("left whole", flush=True)
        try:
            run(slow())
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout.readline() == "begun\n"
            child.send_signal(signal.SIGINT)
            told, _ = child.communicate(timeout=PATIENCE)
        finally:
            child.kill()
    assert told.split("\n")[:2] == ["left whole", "interrupted"]


def test_an_ending_that_fails_is_raised_and_not_waited_for():
    async def work():
        return 1

    with pytest.raises(ZeroDivisionError):
        BackgroundTask(work(), lambda: 1 / 0).result(PATIENCE)


class _Client(EventLoopClientBase):
    async def _stop_client(self) -> None:
        pass


def test_a_client_that_was_closed_is_not_held_until_the_end_of_the_process():
    client = _Client()
    client._on_loop()
    client.close()
    held = weakref.ref(client)
    del client
    gc.collect()
    assert held() is None


def test_a_client_that_is_still_open_is_ended_with_the_process():
    code = """
        from ctxkit.agent import EventLoopClientBase
        class Client(EventLoopClientBase):
            async def _stop_client(self):
                print("stopped", flush=True)
        client = Client()
        client._on_loop()
        print("ends", flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert child.stdout.split() == ["ends", "stopped"]
