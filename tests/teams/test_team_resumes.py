"""A team that is killed, interrupted or refused continues where it stood: nothing that was kept is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from itertools import count

import pytest
from conftest import ALL, SEED
from stand_in_models import Says, said
from teams.small_teams import DONE, clock, config, made, shown, state, to

import ctxkit as ck
from ctxkit.agent import SessionLog
from ctxkit.errors import BadArguments, ModelError, StoreError
from ctxkit.teams import make_scripted_agent

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


@pytest.mark.parametrize("late", [False, pytest.param(True, marks=pytest.mark.long)])
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


def works(folder, told):
    """Work on the team, and say in a pipe what was acknowledged: nothing of it may be lost."""
    with made(folder, PARTS, PLAN) as team:
        for live in team.sessions.values():
            live.agent.model._pause = 0.002

            def hear(event, name=live.name):
                if event.kind in ("model_response", "tool_result"):
                    os.write(told, f"{name}\n".encode())

            live.listen(hear)
        os.write(told, b"ready\n")
        team.run("" if team.ledger.task else "Work.")


def killed(folder, most):
    """Let a process of its own work, and kill it behind so many words; return what it said."""
    heard, told = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            works(folder, told)
        finally:
            os._exit(0)
    os.close(told)
    said = []
    with os.fdopen(heard) as lines:
        for line in lines:
            said.append(line.strip())
            if len(said) > most:
                break
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        said += [line.strip() for line in lines if line.endswith("\n")]
    return said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a process that it forks")
@pytest.mark.parametrize(
    "n", [pytest.param(5, id="5 kills"), pytest.param(100, id="100 kills", marks=pytest.mark.long)]
)
def test_killed_at_random_moments(tmp_path, n):
    if n > 5 and not ALL:
        pytest.skip("CTXKIT_TEST_ALL=1 kills a hundred times")
    rng = random.Random(SEED)
    for i in range(n):
        folder = tmp_path / str(i)
        said = killed(folder, rng.randrange(1, 14))
        assert said[:1] == ["ready"], (SEED, i)
        with made(folder, PARTS, PLAN) as team:
            for name, live in ((x.name, x) for x in team.sessions.values()):
                kept_ = [m for m in live.session.messages if m.role in ("assistant", "tool")]
                assert len(kept_) >= said.count(name), (SEED, i)
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

    from ctxkit.session import ToolCall

    model = Waits(said("first", ToolCall("c", "list_files", {}), stop="tool"), said("DONE"))
    with ck.team(plan, model=model, folder=tmp_path) as team:
        with pytest.raises(asyncio.CancelledError):
            team.run("Work.")
        assert team.status.turns == 0
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
        team.set_task("Work.")
        asyncio.run(team.step())
        with pytest.raises(StoreError, match="is being written by process"):
            made(tmp_path, PARTS, PLAN)
    with made(tmp_path, PARTS, PLAN) as again:
        assert again.status.state == "Two"
        assert again.run().ended == "done"
        assert spoken(again) == WORDS


def test_a_task_is_needed_and_one_at_a_time(tmp_path):
    with made(tmp_path, PARTS, PLAN) as team:
        with pytest.raises(BadArguments, match="Say what the team shall do"):
            team.run()
        team.set_task("Work.")
        with pytest.raises(BadArguments, match="is not done with its task"):
            team.set_task("Something else.")


def test_a_team_works_beside_the_notebook(tmp_path):
    with made(tmp_path, PARTS, PLAN) as team:
        handle = team.background("Work.")
        handle.wait(30)
        assert handle.result().ended == "done"


def test_a_session_that_came_with_the_folder_is_not_gone_on_with(tmp_path):
    with made(tmp_path, PARTS, PLAN) as team:
        team.set_task("Work.")
        folder = team.workspace.sessions
    (folder / ".team.mine").unlink()
    with pytest.raises(BadArguments, match="was not begun there by you"):
        made(tmp_path, PARTS, PLAN)


def test_a_task_goes_on_with_the_config_that_it_was_begun_with(tmp_path):
    other = config(["C", "D"], {"One": state("C", to("End", "DONE")), "End": DONE})
    with made(tmp_path, PARTS, PLAN) as team:
        team.set_task("Work.")
        asyncio.run(team.step())
    words = r"'team' stands in state 'Two' of A, which this config does not have"
    with pytest.raises(BadArguments, match=words):
        made(tmp_path, {}, other, model="scripted/tour")
    with made(tmp_path, PARTS, PLAN) as team:
        assert team.run().ended == "done"
    parts = {"C": [["C one"], ["C two\nDONE"]], "D": []}
    with made(tmp_path, parts, other) as team:  # a new task may have other agents
        team.set_task("More.")
        asyncio.run(team.step())
    with made(tmp_path, parts, other) as team:
        assert team.run().ended == "done"


def test_a_team_goes_on_by_its_name_alone(tmp_path):
    with made(tmp_path, PARTS, PLAN, allow=[".fuseraft"]) as team:
        team.set_task("Work.")
        asyncio.run(team.step())
    tick = clock()
    models = {name: make_scripted_agent(name, turns, tick) for name, turns in PARTS.items()}
    with ck.team(name="team", models=models, folder=tmp_path, clock=tick) as again:
        assert again.plan.max_turns == 40
        assert list(again.sessions) == ["A", "B"]
        again.root.write(".fuseraft/notes.txt", b"as it was allowed")
        assert again.run().ended == "done"
        assert spoken(again) == WORDS
    with pytest.raises(BadArguments, match="No team 'other' was begun here by you: say which"):
        ck.team(name="other", folder=tmp_path)


def test_what_somebody_else_wrote_of_how_it_was_opened_is_not_obeyed(tmp_path):
    with made(tmp_path, PARTS, PLAN) as team:
        team.set_task("Work.")
        path = team.ledger.log.path
    path.write_text(path.read_text().replace('"tools":["files"]', '"tools":["shell"]'))
    with pytest.raises(BadArguments, match=f"name='{'n' * 64}'\\), or"):  # the longest name
        ck.team(name="n" * 64, folder=tmp_path)
    with pytest.raises(BadArguments, match="was begun here by you"):
        ck.team(name="team", folder=tmp_path)
