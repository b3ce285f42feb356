"""A team that is killed, interrupted or refused goes on where it stood: nothing that was kept is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
from itertools import count
from pathlib import Path

import pytest
from conftest import ALL, SEED
from talkers import Says, said
from teams.makes import DONE, config, made, shown, state, to

import ctxkit as ck
from ctxkit.errors import BadArguments, ModelError, StoreError
from ctxkit.store.session_log import SessionLog

STATES = {
    "One": state("A", to("Two", "ON", HandoffContext=[{"Source": "changes_recent"}])),
    "Two": state("B", to("One", "BACK"), to("End", "DONE", Contract="C")),
    "End": DONE,
}
PLAN = config(
    ["A", "B"],
    STATES,
    Contracts=[{"Name": "C", "Requires": [{"Type": "FileExists", "Path": "b.txt"}]}],
)
PARTS = {
    "A": [[("write_file", {"path": "a.txt", "content": "a"}), "A one\nON"], [("read_file", {"path": "a.txt"}), "A two\nON"]],
    "B": [["B one\nBACK"], ["B two\nDONE"], [("write_file", {"path": "b.txt", "content": "b"}), "B three\nDONE"]],
}  # fmt: skip
WORDS = ["A one\nON", "B one\nBACK", "A two\nON", "B two\nDONE", "B three\nDONE"]


class Killed(BaseException):
    """Stands for the end of the process."""


def spoken(team):
    """The last words of each turn, as the ledger has them."""
    texts = [m.text.split("\n", 1)[1] for m in team.ledger.session.messages if m.kind == "heard"]
    return [t for t in texts if not t.startswith("Now ")]


def kept(team):
    """Ids of all that is on disk: the ledger's and the sessions'."""
    logs = [team.ledger.log, *(live.log for live in team.sessions.values())]
    return {log.name: [e.id for e in ck.read(log.path).log] for log in logs}


def writes(folder, monkeypatch, at, late):
    """Run the team until its `at`-th write, killed before or after it; return True where it came to its end."""
    real, n = SessionLog._write, count()

    def write(self, *args):
        now = next(n)
        if now == at and not late:
            raise Killed
        real(self, *args)
        if now == at:
            raise Killed

    with made(folder, PARTS, PLAN) as team, monkeypatch.context() as patch:
        patch.setattr(SessionLog, "_write", write)
        try:
            team.run("Work.")
        except Killed:
            return False
    return True


@pytest.mark.parametrize("late", [False, True])
def test_killed_at_any_write_it_goes_on_and_nothing_is_lost(tmp_path, monkeypatch, late):
    for at in count():
        folder = tmp_path / str(at)
        if writes(folder, monkeypatch, at, late):
            break
        with made(folder, PARTS, PLAN) as team:
            before = kept(team)
            done = team.run("" if team.ledger.task else "Work.")
            assert (done.ended, done.turns) == ("done", 5), at
            assert spoken(team) == WORDS, at
            after = kept(team)
            assert all(after[name][: len(ids)] == ids for name, ids in before.items())
            for live in team.sessions.values():
                asked = [c.id for m in live.session.messages for c in m.tool_calls]
                assert [m.call_id for m in live.session.messages if m.role == "tool"] == asked
    assert at > 25  # so many moments


RUN = """
    import sys, time
    sys.path[:0] = {path!r}
    from teams.makes import made
    from teams.test_team_resumes import PARTS, PLAN
    with made({folder!r}, PARTS, PLAN) as team:
        for live in team.sessions.values():
            live.agent.model._pause = 0.002
            def hear(event, name=live.name):
                if event.kind in ("model_response", "tool_result"):
                    print(name, flush=True)
            live.listen(hear)
        print("ready", flush=True)
        team.run("" if team.ledger.task else "Work.")
        print("over", flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="kills with a signal of POSIX")
@pytest.mark.parametrize(
    "n", [pytest.param(2, id="2 kills"), pytest.param(100, id="100 kills", marks=pytest.mark.long)]
)
def test_killed_at_random_moments(tmp_path, n):
    if n > 2 and not ALL:
        pytest.skip("CTXKIT_TEST_ALL=1 kills a hundred times")
    rng, here = random.Random(SEED), str(Path(__file__).parents[1])
    for i in range(n):
        folder = tmp_path / str(i)
        program = textwrap.dedent(RUN.format(path=[here], folder=str(folder)))
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
        )
        heard, most = [], rng.randrange(1, 14)
        for line in process.stdout:
            heard.append(line.strip())
            if len(heard) > most:
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert heard[:1] == ["ready"], (SEED, i)
        with made(folder, PARTS, PLAN) as team:
            for name, live in ((x.name, x) for x in team.sessions.values()):
                told = [m for m in live.session.messages if m.role in ("assistant", "tool")]
                assert len(told) >= heard.count(name), (SEED, i)
            assert team.run("" if team.ledger.task else "Work.").ended == "done", (SEED, i)
            assert spoken(team) == WORDS, (SEED, i)


def test_an_interrupt_keeps_what_was_said_and_the_turn_is_taken_again(tmp_path):
    plan = config(["A"], {"One": state("A", to("End", "DONE")), "End": DONE})

    class Waits(Says):
        async def __call__(self, request, emit):
            if len(self.asked) == 1:
                self.asked.append(request)
                raise asyncio.CancelledError
            return await super().__call__(request, emit)

    from ctxkit.messages import ToolCall

    model = Waits(said("first", ToolCall("c", "list_files", {}), stop="tool"), said("DONE"))
    with ck.team(plan, model=model, folder=tmp_path) as team:
        with pytest.raises(asyncio.CancelledError):
            team.run("Work.")
        assert team.standing.turns == 0
        assert team.run().ended == "done"
        assert "cut off" in shown(team, "A")[-1][1]
        assert [m.text for m in team.ledger.session.messages if m.kind == "heard"] == [
            "[A]\nfirst",
            "[A]\nDONE",
        ]


def test_a_model_that_fails_stops_the_team_and_its_turn_is_taken_again(tmp_path):
    model = Says(ModelError("no such server."), said("DONE"))
    plan = config(["A"], {"One": state("A", to("End", "DONE")), "End": DONE})
    with ck.team(plan, model=model, folder=tmp_path) as team:
        with pytest.raises(ModelError, match=r"no such server\. The turn of A is taken again"):
            team.run("Work.")
        assert team.run().ended == "done"


def test_it_goes_on_in_another_process_and_only_one_runs_it(tmp_path):
    with made(tmp_path, PARTS, PLAN) as team:
        team.ask("Work.")
        asyncio.run(team.step())
        with pytest.raises(StoreError, match="is being written by process"):
            made(tmp_path, PARTS, PLAN)
    with made(tmp_path, PARTS, PLAN) as again:
        assert again.standing.state == "Two"
        assert again.run().ended == "done"
        assert spoken(again) == WORDS


def test_a_task_is_needed_and_one_at_a_time(tmp_path):
    with made(tmp_path, PARTS, PLAN) as team:
        with pytest.raises(BadArguments, match="Say what the team shall do"):
            team.run()
        team.ask("Work.")
        with pytest.raises(BadArguments, match="is not done with its task"):
            team.ask("Something else.")


def test_a_team_works_beside_the_notebook(tmp_path):
    with made(tmp_path, PARTS, PLAN) as team:
        handle = team.background("Work.")
        handle.wait(30)
        assert handle.result().ended == "done"


def test_a_session_that_came_with_the_folder_is_not_gone_on_with(tmp_path):
    with made(tmp_path, PARTS, PLAN) as team:
        team.ask("Work.")
        folder = team.workspace.sessions
    (folder / ".team.mine").unlink()
    with pytest.raises(BadArguments, match="was not begun there by you"):
        made(tmp_path, PARTS, PLAN)


def test_a_task_goes_on_with_the_config_that_it_was_begun_with(tmp_path):
    other = config(["C", "D"], {"One": state("C", to("End", "DONE")), "End": DONE})
    with made(tmp_path, PARTS, PLAN) as team:
        team.ask("Work.")
        asyncio.run(team.step())
    words = r"'team' stands in state 'Two' of A, which this config does not have"
    with pytest.raises(BadArguments, match=words):
        made(tmp_path, {}, other, model="scripted/tour")
    with made(tmp_path, PARTS, PLAN) as team:
        assert team.run().ended == "done"
    parts = {"C": [["C one"], ["C two\nDONE"]], "D": []}
    with made(tmp_path, parts, other) as team:  # a new task may have other agents
        team.ask("More.")
        asyncio.run(team.step())
    with made(tmp_path, parts, other) as team:
        assert team.run().ended == "done"
