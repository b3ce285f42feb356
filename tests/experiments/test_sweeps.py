"""One row a run, wherever it runs: equal to the engine, complete after failures, kept when interrupted."""

from __future__ import annotations

import gc
import json
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pandas as pd
import pytest
from experiments.test_cost_and_loss_scores import talk

import ctxkit as ck
from ctxkit.engine import run_replay
from ctxkit.experiments import SCORE_COLUMN_NAMES, sweep_runs, sweep_workers
from ctxkit.experiments.sweep_runs import resolve_settings
from ctxkit.experiments.sweep_workers import (
    BATCH_SECONDS,
    BatchResult,
    NamedRules,
    RemainingSessionWork,
    SessionRunner,
    SweepScoreOptions,
    WorkPlan,
    run_in_executor,
)
from ctxkit.policies import recorded_rules
from ctxkit.presets import resolve_rules

GRID = {
    "context_window": [50_000, 60_000],
    "keep_recent_tokens": [2000, 6000, 90_000],
    "summariser": "fixed",
}


def small():
    return talk(20), ck.grid(ck.presets.pi, **GRID)


def test_a_grid_is_every_combination_and_refuses_what_cannot_work():
    found = ck.grid("pi", **GRID)
    assert len(found) == 6
    assert [r.parameters["keep_recent_tokens"] for r in found.refused] == [90_000, 90_000]
    assert "frees nothing" in repr(found)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("pie", {}), "pi"),
        (("pi", {"keep_recent_token": [1]}), "keep_recent_tokens"),
        (("pi", {"quirks": []}), "empty"),
    ],
)
def test_a_grid_that_means_nothing_is_refused(arguments, match):
    with pytest.raises(ck.CtxkitError, match=match):
        ck.grid(arguments[0], **arguments[1])


def test_rows_hold_what_the_engine_gives_to_the_token():
    s, rules = small()
    runs = ck.sweep([s, s], rules)
    assert len(runs) == 12
    assert set(SCORE_COLUMN_NAMES) | {"context_window", "keep_recent_tokens"} == set(runs.columns)
    for (_, row), rule in zip(runs.iterrows(), [*rules, *rules], strict=True):
        if pd.isna(row["error"]):
            done = run_replay(s, rule)
            assert (row["prompt_tokens"], row["peak_tokens"], row["compactions_n"]) == (
                done.total,
                done.peak,
                len(done.compactions),
            )
            assert row["cost_usd"] == ck.score(ck.replay(s, rule), loss=False)["cost_usd"]
    assert runs["error"].notna().sum() == 4


def test_a_run_that_fails_is_a_row_and_the_others_go_on():
    def broken(history, budget):
        raise ZeroDivisionError("oh")

    runs = ck.sweep(talk(5), [ck.presets.none(), broken])
    assert runs["error"].tolist()[1] == "ZeroDivisionError: oh"
    assert pd.isna(runs["error"][0])


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_an_executor_gives_the_same_rows(pool):
    s, rules = small()
    with pool(2) as executor:
        assert ck.sweep([s, talk(7)], rules, executor=executor).equals(
            ck.sweep([s, talk(7)], rules)
        )


class Dying(ThreadPoolExecutor):
    """Loses every second batch on the way."""

    n = 0

    def submit(self, work, /, *arguments):
        self.n += 1
        if self.n % 2:
            return super().submit(work, *arguments)
        lost: Future = Future()
        lost.set_exception(RuntimeError("the worker is gone"))
        return lost


class Strangers(Executor):
    """Has a new worker for every batch."""

    _max_workers = 2

    def submit(self, work, /, *arguments):
        with ThreadPoolExecutor(1) as one:
            return one.submit(work, *arguments)


def test_nothing_is_left_undone_where_workers_come_and_go():
    s, rules = small()
    given = [s, talk(9), talk(8)]
    assert ck.sweep(given, [*rules, ck.presets.pi()], executor=Strangers()).equals(
        ck.sweep(given, [*rules, ck.presets.pi()])
    )


def test_what_a_worker_lost_is_done_here():
    s, rules = small()
    with Dying(1) as executor, pytest.warns(UserWarning, match="worker") as warned:
        runs = ck.sweep([s, talk(9), talk(8)], rules, executor=executor)
    assert {w.filename for w in warned} == {__file__}  # each names the call of the sweep
    assert runs.equals(ck.sweep([s, talk(9), talk(8)], rules))


def test_finished_runs_are_kept_and_not_made_again(tmp_path, monkeypatch):
    s, rules = small()
    out = tmp_path / "runs.jsonl"
    first = ck.sweep(s, rules[:2], out=out)
    out.write_bytes(out.read_bytes() + b'{"torn": ')
    made = []
    from ctxkit.experiments import sweep_workers

    honest = sweep_workers.SessionRunner.row
    monkeypatch.setattr(
        sweep_workers.SessionRunner,
        "row",
        lambda self, setting, o: made.append(setting.label) or honest(self, setting, o),
    )
    again = ck.sweep(s, rules[:3], out=out)
    assert len(made) == 1
    assert again.iloc[:2][["prompt_tokens", "cost_usd"]].equals(
        first[["prompt_tokens", "cost_usd"]]
    )
    lines = [json.loads(x) for x in out.read_text().splitlines() if x.startswith('{"session')]
    assert len(lines) == 2  # the third was refused


def test_a_torn_last_line_does_not_swallow_the_next_run(tmp_path):
    s, rules = small()
    out = tmp_path / "runs.jsonl"
    ck.sweep(s, rules[:1], out=out)
    (first,) = out.read_bytes().splitlines()
    out.write_bytes(first + b'\n{"torn": ')
    ck.sweep(s, rules[:2], out=out)
    kept, torn, new, end = out.read_bytes().split(b"\n")
    assert (kept, torn, end) == (first, b'{"torn": ', b"")
    assert json.loads(new)["rules"] == ck.sweep(s, rules[:2], out=out)["rules"].iloc[1]
    assert out.read_bytes().count(b"\n") == 3  # a file that ends with a line gets no empty one


def test_other_options_are_other_runs(tmp_path):
    s, rules = small()
    ck.sweep(s, rules[:1], out=tmp_path / "r.jsonl")
    assert ck.sweep(s, rules[:1], out=tmp_path / "r.jsonl", loss=True)["items_n"].notna().all()


def test_an_interrupt_keeps_what_is_done(tmp_path):
    s = talk(8)
    asked = []

    def impatient(history, budget):
        if len(asked) > 3:
            raise KeyboardInterrupt
        asked.append(history.call)
        return history

    with pytest.warns(UserWarning, match="1 of 2 runs") as warned:
        runs = ck.sweep(s, [ck.presets.none(), impatient], out=tmp_path / "r.jsonl")
    assert __file__ in {w.filename for w in warned}  # it names the call of the sweep
    assert list(runs["rules"]) == ["none"]
    assert runs.attrs["interrupted"]


def test_losses_are_worked_out_on_request():
    s, rules = small()
    runs = ck.sweep(s, rules[:1], loss=True)
    one = ck.score(ck.replay(s, rules[0]))
    assert (one["reused_items_n"], one["at_stake_items_n"]) == (0, 0)
    for name in ("items_n", "retained", "needed_later_loss", "regret"):
        assert runs[name][0] is one[name] is pd.NA or runs[name][0] == one[name], name
    assert one["needed_later_loss"] is pd.NA  # something was cut and nothing was ever named again
    assert ck.sweep(s, rules[:1])["items_n"].isna().all()


@pytest.mark.parametrize("sessions", [3, [], [3]])
def test_what_is_no_session_is_refused(sessions):
    with pytest.raises(ck.BadArguments, match="session"):
        ck.sweep(sessions, "none")


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ck.StoreError, match="kept"):
        ck.sweep(talk(3), "none", out=tmp_path / "no" / "r.jsonl")


def planned(*lengths, workers=2, run=None):
    shares = [
        RemainingSessionWork(i, talk(5), [NamedRules("x", None, f"{n}") for n in range(k)])
        for i, k in enumerate(lengths)
    ]
    plan = WorkPlan(shares, workers)
    plan.run = run
    return plan


def test_batches_are_neither_tiny_nor_endless():
    assert len(planned(1000).next("a")[1]) == 4
    assert len(planned(1000, run=1e-6).next("a")[1]) == 1000
    assert len(planned(1000, run=0.01).next("a")[1]) == 100
    assert len(planned(100, 100, run=0.002).next("a")[1]) == 50
    assert len(planned(3, run=1.0).next("a")[1]) == 1


def test_a_worker_stays_with_its_session_and_helps_where_it_pays():
    plan = planned(40, 40, run=0.02)
    (mine, _), (other, _), (again, _) = (plan.next(w) for w in ("a", "b", "a"))
    assert mine is again is not other
    mine.remaining.clear()
    helped, settings = plan.next("a")
    assert helped is other
    assert len(settings) <= (len(other.remaining) + len(settings)) / 2 + 1
    other.remaining = other.remaining[:1]
    assert plan.next("a") is None


def test_the_session_with_the_most_work_is_the_first_to_be_read_and_to_be_shared():
    sizes = [(6, 1), (1, 8), (3, 3), (5, 2)]  # calls, settings
    plan = WorkPlan(
        [
            RemainingSessionWork(i, talk(calls), [NamedRules("x", None, f"{k}") for k in range(n)])
            for i, (calls, n) in enumerate(sizes)
        ],
        workers=2,
    )
    assert [s.place for s in plan.shares] == [3, 2, 1, 0]
    plan.run = 0.5
    assert plan.seconds == 0.5 * (6 + 8 + 9 + 10)
    for share in plan.shares:
        share.owner = "a"
    taken = [plan.next("b")[0].place for _ in range(6)]
    assert taken == [3, 2, 1, 0, 3, 1]  # then 5 remain of the 10 of the first, and 4 of the 8


def test_a_worker_takes_half_of_what_another_has_left():
    plan = planned(31, run=1.5 * BATCH_SECONDS / (31 * 5))  # all of it takes 1.5 batches
    (share,) = plan.shares
    share.owner = "a"
    assert len(plan.next("b")[1]) == 16
    assert plan.next("b") is None  # the other 15 end before another could have begun
    assert share.owner == "a"
    assert len(plan.next("a")[1]) == 15


def test_durations_are_those_of_runs_and_of_the_first_reading():
    plan = planned(9)
    (share,) = plan.shares  # of 5 calls
    plan.learn(share, BatchResult([(), (), ()], (1, 1), first=1.3, rest=0.8, was_cached=False))
    assert plan.run == pytest.approx(0.08)  # 0.4 s a run
    assert plan.read == pytest.approx(0.18)  # 0.9 s more than a run
    plan.learn(share, BatchResult([()], (1, 1), first=0.2, rest=0.0, was_cached=False))
    plan.learn(share, BatchResult([(), ()], (1, 1), first=0.9, rest=0.3, was_cached=True))
    assert plan.run == pytest.approx(((0.08 + 0.04) / 2 + 0.06) / 2)
    assert plan.read == pytest.approx(0.18)  # a single run, or a cached session, does not tell
    assert plan.seconds == pytest.approx(plan.run * 5 * 9)
    plan.learn(share, BatchResult([(), ()], (1, 1), first=0.1, rest=0.3, was_cached=False))
    assert plan.read == 0


def test_work_is_small_where_a_reading_takes_longer():
    plan = planned(9, run=0.05)  # 0.25 s a run
    (share,) = plan.shares
    assert [plan.is_small(share, n) for n in (0, 1)] == [True, False]
    plan.read = 0.1  # 0.5 s a reading
    assert [plan.is_small(share, n) for n in (1, 2, 3)] == [True, True, False]
    assert not planned(9).is_small(share, 1)  # nothing is known


def test_a_worker_ends_the_session_that_it_has_read():
    settings = resolve_settings(ck.grid("pi", context_window=range(20_000, 30_000, 1000)))
    tasks = [(0, talk(6), settings), (1, talk(5), settings)]
    with ThreadPoolExecutor(1) as one:
        batches = list(run_in_executor(tasks, one, SweepScoreOptions()))
    places = [place for place, _ in batches]
    assert places.count(0) > 1
    assert places == sorted(places)
    assert sum(len(rows) for _, rows in batches) == 20


def test_whole_sessions_lie_ready_while_many_are_left():
    plan = planned(*[10] * 9, run=0.01)
    ready = [plan.spare() for _ in range(9)]
    assert [len(r[1]) for r in ready if r] == [10] * 6  # the last ones are better parted
    assert len({r[0].place for r in ready if r}) == 6
    parted = planned(*[10] * 9, run=0.01)
    parted.next("a")[0].remaining = [None]
    assert parted.spare() is None


def test_all_settings_are_handed_out_once():
    plan, seen = planned(17, 1, 90, run=0.01), []
    while any(s.remaining for s in plan.shares):
        seen += [
            (given[0].place, s.key)
            for w in "abc"
            if (given := plan.next(w)) is not None
            for s in given[1]
        ]
    assert len(seen) == len(set(seen)) == 108


def test_equal_rules_and_functions_of_one_name_are_told_apart():
    def dropping(n):
        return lambda history, budget: history.drop(n, "old") if len(history) > 12 else history

    s = talk(12)
    runs = ck.sweep(s, [ck.presets.none(), ck.presets.none(), dropping(1), dropping(4)])
    assert runs["rules"].tolist() == ["none", "none (2)", "<lambda>", "<lambda> (2)"]
    assert (
        runs["compactions_n"][2]
        > runs["compactions_n"][3]
        > runs["compactions_n"][0]
        == runs["compactions_n"][1]
        == 0
    )


def test_a_shared_log_gives_every_preset_its_own_rows():
    s = talk(25)
    runs = ck.sweep(s, "all")
    for rules, (_, row) in zip(ck.presets.names(), runs.iterrows(), strict=True):
        again = ck.score(ck.replay(s, ck.presets.preset(rules)), loss=False)
        for name in (
            "prompt_tokens",
            "peak_tokens",
            "compactions_n",
            "cost_usd",
            "hidden_messages_n",
        ):
            assert row[name] == again[name], (rules, name)


def test_runs_are_let_go_at_once():
    """Ten thousand runs are not to wait for the collector of garbage, each with all that it holds."""
    bench, kept = SessionRunner(ck.read(ck.samples.path("incident"))), {}
    settings = [NamedRules.of(name, resolve_rules(name)) for name in ck.presets.names()]
    assert all("error" not in row for row in bench.rows(settings, SweepScoreOptions(loss=True)))
    gc.collect()
    gc.disable()
    gc.freeze()
    try:
        for setting in settings:
            bench.row(setting, SweepScoreOptions(loss=True))
            kept[setting.label] = gc.collect()
    finally:
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # as it was: what all tests hold stays out of each later collection
        gc.enable()
    assert not {name: n for name, n in kept.items() if n}


def test_recorded_rules_send_what_their_replay_does(real):
    session = max(ck.read_all(real / "codex"), key=lambda s: len(s.calls))
    row = ck.sweep([session], [recorded_rules()]).iloc[0]
    replay = ck.replay(session, recorded_rules())
    assert row["prompt_tokens"] == ck.score(replay, loss=False)["prompt_tokens"]


def test_counters_of_one_name_have_logs_of_their_own():
    rules = [ck.presets.pi().but(counter=Counting(n), name=f"by {n}") for n in (2, 8)]
    bench = SessionRunner(talk(5))
    logs = [bench.log(each) for each in rules]
    assert logs[0] is not logs[1]
    assert [log.counter.n for log in logs] == [2, 8]
    assert bench.log(rules[0]) is logs[0]


class Counting:
    """Counts characters; it cannot be hashed."""

    name = "mine"
    __hash__ = None

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, text: str) -> int:
        return len(text) // self.n

    def message(self, message: Any) -> int:
        return len(message.text) // self.n


def test_a_note_says_in_how_many_settings_it_holds():
    runs = ck.sweep(talk(4, 200, first=70_000), ["pulse_coder", "none"], progress=False)
    assert "In 1 of 2 settings " in " ".join(repr(runs).split())


def test_the_bar_counts_calls_of_runs_that_are_made_or_kept(tmp_path, monkeypatch):
    from builders import session, user

    made, out = [], tmp_path / "runs.jsonl"
    honest = sweep_runs.make_progress_bar

    def make_bar(**options):
        bar = honest(**{**options, "disable": True})
        bar.told, bar.steps = options, []
        bar.update = bar.steps.append
        made.append(bar)
        return bar

    monkeypatch.setattr(sweep_runs, "make_progress_bar", make_bar)
    silent = session(user())  # a session without calls counts as one
    given, rules = [talk(5), silent, talk(3)], ["none", "codex"]
    ck.sweep(given, rules[:1], out=out)
    ck.sweep(given, rules, out=out, progress=False)
    first, second = made
    assert (first.told["total"], second.told["total"]) == (5 + 1 + 3, 2 * (5 + 1 + 3))
    assert first.steps == [0, 0, 0, 5, 1, 3]
    assert second.steps == [5, 1, 3, 5, 1, 3]
    assert [b.told["disable"] for b in made] == [False, True]
    assert first.told["desc"] == "sweep"
    ck.compare(talk(5), "none", progress=False)
    assert (made[-1].told["desc"], made[-1].told["total"]) == ("comparison", 5)


@pytest.mark.parametrize("out", [None, "runs.jsonl"])
def test_an_interrupt_says_how_much_is_done_and_where(tmp_path, out):
    def impatient(_history, _budget):
        raise KeyboardInterrupt

    kept = " and kept in the file" if out else ""
    with pytest.warns(
        UserWarning, match=rf"^The sweep was interrupted: 1 of 4 runs are done{kept}\.$"
    ):
        ck.sweep([talk(3), talk(4)], ["none", impatient], out=out and tmp_path / out)


def test_runs_of_another_version_or_without_keys_are_made_again(tmp_path):
    out = tmp_path / "runs.jsonl"
    ck.sweep(talk(3), ["none"], out=out)
    assert out.read_text().startswith('{"session"')  # a new file has no empty line
    row = json.loads(out.read_text())
    out.write_text("")
    with sweep_runs.RunJournal(out, row["options"]) as journal:
        journal.keep([row])
    assert out.read_text().startswith('{"session"')  # nor has one that was empty
    keys = (row["of"], row["key"])
    assert (row["version"], row["options"]) == (5, "loss=False reuse=False")

    def is_kept(line, options="loss=False reuse=False"):
        out.write_text(f"\n[1]\n{json.dumps(line)}\n")
        with sweep_runs.RunJournal(out, options) as journal:
            return journal.get_row(*keys) is not None

    assert is_kept(row)
    assert not is_kept(row, "loss=True reuse=False")
    assert not is_kept({**row, "version": 4})
    assert not any(
        is_kept({k: v for k, v in row.items() if k != n}) for n in ("of", "key", "options")
    )


def test_an_executor_without_submit_is_refused():
    with pytest.raises(ck.BadArguments, match=r"An executor has `submit`.*; int has not"):
        ck.sweep(talk(2), "none", executor=3)


def test_the_number_of_workers_is_that_of_the_executor_or_its_client():
    class Client:
        def __init__(self, *threads):
            self.threads = dict(enumerate(threads))

        def nthreads(self):
            return self.threads

    def count(**fields):
        return sweep_workers.count_workers(type("Some", (), fields)())

    assert count(_max_workers=3) == 3
    assert count(_max_workers=1, _client=Client(8)) == 1
    assert count(_max_workers=0) == count(_max_workers=2.5) == count() == 4
    assert count(_client=Client(2, 3)) == 5
    assert count(_client=Client()) == count(_client=object()) == 4


def test_a_session_has_the_same_key_while_its_calls_are_the_same():
    from msgspec.structs import replace

    s = talk(4, id="one", agent="a")
    key = sweep_workers.make_session_key(s)
    assert key == sweep_workers.make_session_key(replace(s, title="new"))
    assert len(key) == 16
    # files of finished runs and baselines hold keys, so they stay as they are
    fixed = ck.Session(id="s", log=(ck.Message(role="user", id="u"),), format="pi", agent="main")
    assert sweep_workers.make_session_key(fixed) == "49f56c7de766a5b2"
    reply = s.log[-1]
    changed = [
        replace(s, id="two"), replace(s, agent="b"), replace(s, format="other"),
        replace(s, log=s.log[:-1]), replace(s, log=(*s.log[:-1], replace(reply, id="other"))),
        replace(s, log=(*s.log[:-1], replace(reply, usage=None))),
        replace(s, log=(s.log[1], s.log[0], *s.log[2:])),
    ]  # fmt: skip
    keys = [sweep_workers.make_session_key(each) for each in changed]
    assert len({key, *keys}) == 1 + len(changed)


def test_each_worker_gets_a_batch_and_sessions_lie_ready_in_the_queue():
    plan, running = planned(*[2] * 9, run=0.001), []
    idle = ["a", "b"]
    for worker, share, settings in plan.assign_batches(idle, running):
        running.append((worker, share.place, len(settings)))
    # 0.09 s of work in all, 0.01 s a session: two of each worker are queued before they ask
    assert [n for *_, n in running] == [2] * 4
    assert idle == ["a", "b"]
    first, running = planned(8, 8), []
    for worker, share, settings in first.assign_batches(idle, running):
        running.append((worker, share.place, len(settings)))
    assert running == [("b", 0, 4), ("a", 1, 4)]
    assert idle == []
    (orphan,) = first.orphans()
    assert [s.owner for s in first.shares] == [None, None]
    assert first.next(orphan) is not None
    for share in first.shares:
        share.remaining.clear()
    assert first.orphans() == []


def test_a_session_that_takes_long_is_not_queued_whole():
    def is_queued(*lengths, run):
        return planned(*lengths, run=run).spare() is not None

    # 5 calls: one setting takes 5 * run seconds, and a queued session at most a quarter of all
    assert is_queued(10, 10, 10, 10, run=0.1)  # 5 s of 20 s
    assert not is_queued(10, 10, 10, 10, run=0.11)
    assert not is_queued(10, 10, 10, run=0.1)
    assert not is_queued(run=0.1)
    assert not is_queued(10, 10, 10, 10, run=None)


def test_a_worker_reads_a_session_once():
    import pickle

    s, settings = talk(4), resolve_settings(["none", "codex"])
    key, data = sweep_workers.make_session_key(s), pickle.dumps(s)

    def run(name, data):
        return sweep_workers.run_batch(name, data, settings, SweepScoreOptions())

    with ThreadPoolExecutor(1) as one:
        first, again = (one.submit(run, key, d).result() for d in (data, b"no session"))
    assert [r["rules"] for r in first.rows] == [r["rules"] for r in again.rows] == ["none", "codex"]
    assert [r.was_cached for r in (first, again)] == [False, True]
    assert first.worker == again.worker
    assert 0 < first.first < 60
    assert 0 < first.rest < 60
