"""A sweep on a Dask cluster: the same rows, none lost, also when a worker is killed in the middle."""

from __future__ import annotations

import os
import signal

import pytest
from experiments.test_cost_and_loss_scores import talk

import ctxkit as ck

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
QUIET = {"dashboard_address": None, "silence_logs": 50}


@pytest.fixture
def distributed():
    """Dask's cluster, which takes long to import."""
    return pytest.importorskip("distributed", reason="needs the extra jupyter-ctxkit[dask]")


class Slow:
    """A policy that takes a moment, so that a worker can be killed while it works."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, history, budget):
        import time

        time.sleep(0.01)
        return history if len(history) < self.n else history.drop(1, "the oldest")

    def __repr__(self) -> str:
        return f"Slow({self.n})"


def test_a_cluster_in_this_process_gives_the_same_rows(distributed):
    rules = ck.grid(
        ck.presets.pi,
        context_window=[50_000, 60_000],
        keep_recent_tokens=[2000, 4000],
        summariser="fixed",
    )
    sessions = [talk(8), talk(9)]
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, **QUIET
        ) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        here = ck.sweep(sessions, rules)
        assert ck.sweep(sessions, rules, executor=executor).equals(here)
        assert ck.sweep(sessions, rules, executor=client).equals(here)


@pytest.mark.long
def test_a_worker_killed_in_the_middle_loses_no_row(distributed):
    sessions, rules = [talk(12, id=f"s{i}") for i in range(6)], [Slow(n) for n in range(4, 12)]
    expected, killed = ck.sweep(sessions, rules), []

    def kill(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **QUIET) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        victim = next(iter(cluster.workers.values())).pid
        client.loop.add_callback(client.loop.call_later, 1.0, kill, victim)
        runs = ck.sweep(sessions, rules, executor=executor)
    assert killed == [victim]
    assert runs.equals(expected)
