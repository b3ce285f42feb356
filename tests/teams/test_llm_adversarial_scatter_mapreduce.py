"""A model that picks, makers and critics, all the same task, a list worked off: each to its end."""

from __future__ import annotations

import asyncio
import json

import pytest
from teams.orchestration_files import ADVERSARIAL, LLM, MAPREDUCE, SCATTER
from teams.small_teams import made, shown
from yaml import safe_load

import ctxkit as ck


def went(team):
    return team.moves["agent"].dropna().tolist()


PICKED = {
    "pick": [["Writer"], ["I am not sure."], ["**Critic**"], ["Writer"]],
    "Writer": [["A draft."], ["TO THE END"]],
    "Critic": [["Too short."]],
}


def test_a_model_picks_who_is_next(tmp_path):
    with made(tmp_path, PICKED, safe_load(LLM)) as team:
        assert team.run("Write.").why == "Writer said TO THE END"
        assert went(team) == ["Selector", "Writer", "Selector", "Selector", "Critic", "Selector",
                              "Writer"]  # fmt: skip
        told = shown(team, "Selector")[0][1]
        assert told == "Of these agents:\n- Writer: Writes.\n- Critic: Judges.\n(it follows)\nwho?"
        assert "Writer | Critic" in shown(team, "Selector", 0)[-1][1]
        assert ("heard", "[Critic]\nToo short.") in shown(team, "Selector")
        assert team.account.set_index("agents").loc["Selector", "calls_n"] == 4


def test_a_model_that_picks_nobody_comes_to_an_end_and_rounds_are_counted(tmp_path):
    never = {**PICKED, "pick": [["Hm."]] * 9}
    with made(tmp_path / "never", never, safe_load(LLM)) as team:
        assert team.run("Write.").ended == "stopped"
        assert team.status.turns == 3
    long = {"pick": [["Critic"]] * 9, "Critic": [["Hm."]] * 9, "Writer": []}
    with made(tmp_path / "long", long, safe_load(LLM)) as team:
        assert team.run("Write.").why == "the team has had its 12 turns"


JUDGED = {
    "Planner": [["Plan A, by intuition."], ["Plan B."]],
    "PlanReviewer": [["No goal is named."], ["APPROVED"]],
    "Developer": [["Code 1."], ["Code 2."], ["never"]],
    "CodeReviewer": [["Bug in 1."], ["Bug in 2."], ["never"]],
}


def test_a_critic_judges_until_it_passes_or_the_rounds_are_over(tmp_path):
    """What passed, or was judged last, is what the next stage continues from."""
    with made(tmp_path, JUDGED, safe_load(ADVERSARIAL)) as team:
        assert team.run("Build one.").ended == "done"
        assert went(team) == ["Planner", "PlanReviewer"] * 2 + ["Developer", "CodeReviewer"] * 2
        heard = [t for k, t in shown(team, "Developer") if k == "heard"]
        assert heard[-2:] == ["[PlanReviewer]\nAPPROVED", "[CodeReviewer]\nBug in 1."]
        assert "[Planner]\nPlan B." in heard
        planned = shown(team, "Planner")  # it declares a Context: it hears nobody by itself
        assert [k for k, _ in planned if k != "system"] == ["task", "assistant", "user"]
        assert planned[-1][1].endswith("This is what PlanReviewer says:\n\nNo goal is named.")


def test_a_critic_sees_what_it_judges_and_nothing_else(tmp_path):
    """Not the task, no word of another stage, no earlier turn of its own."""
    with made(tmp_path, JUDGED, safe_load(ADVERSARIAL)) as team:
        team.run("Build one.")
        for call, draft in enumerate(("Plan A, by intuition.", "Plan B.")):
            (system, words) = shown(team, "PlanReviewer", call)
            assert system == ("system", "You judge plans.")
            assert words[1].endswith(f"This is what Planner says:\n\n{draft}")
            assert (
                f"APPROVED. Without one, {'Planning 2' if not call else 'Work 1'} is next"
                in words[1]
            )


EXPERTS = {"Law": [["Legal."]], "Money": [["Cheap."], ["Dear."]], "Lead": [["So be it."]]}


def test_all_have_the_same_task_and_one_makes_an_answer_of_it(tmp_path):
    with made(tmp_path, EXPERTS, safe_load(SCATTER)) as team:
        assert team.run("Judge it.").ended == "done"
        assert went(team) == ["Law", "Money", "Money", "Lead"]
        for agent, call in (("Law", 0), ("Money", 0), ("Money", 1)):
            kinds = [k for k, _ in shown(team, agent, call)]
            assert [k for k in kinds if k != "system"] == ["task", "user"]
        heard = [t for k, t in shown(team, "Lead") if k == "heard"]
        assert heard == ["[Law]\nLegal.", "[Money]\nCheap.", "[Money]\nDear."]


def test_it_is_spread_again_for_the_next_task_and_goes_on_where_it_was_cut_off(tmp_path):
    parts = {"Law": [["1"], ["4"]], "Money": [["2"], ["3"], ["5"], ["6"]], "Lead": [["A"], ["B"]]}
    with made(tmp_path, parts, safe_load(SCATTER)) as team:
        team.run("Judge it.")
        team.set_task("Judge that.")
        asyncio.run(team.step())
        assert team.status.branches == ("2. Money", "3. Money")
    with made(tmp_path, parts, safe_load(SCATTER)) as team:
        assert team.run().ended == "done"
        assert went(team)[4:] == ["Law", "Money", "Money", "Lead"]
        heard = [t for k, t in shown(team, "Money", 2) if k == "heard"]
        assert "[Lead]\nA" in heard
        assert "[Law]\n4" not in heard


def splits(*items):
    return ["Here:\n" + json.dumps({"work": {"files": list(items)}})]


MAPPED = {
    "Splitter": [["Three files."], splits("a.py", {"file": "b.py"}, "c.py")],
    "Mapper": [["a is fine."], ["b is not."], ["c is."]],
    "Reducer": [["One of three is not."]],
}


def test_a_list_is_worked_off_item_by_item(tmp_path):
    with made(tmp_path, MAPPED, safe_load(MAPREDUCE)) as team:
        assert team.run("Look through the files.").ended == "done"
        assert went(team) == ["Splitter", "Splitter", "Mapper", "Mapper", "Mapper", "Reducer"]
        told = [t for k, t in shown(team, "Splitter") if k == "correction"]
        assert told[0].startswith("JSON block correct? End your reply with one JSON object")
        items = ("a.py", '{"file": "b.py"}', "c.py")
        for n, item in enumerate(items):
            words = shown(team, "Mapper", n)
            assert [k for k, _ in words if k not in ("system", "correction")] == [
                "task", "heard", "heard", "user"]  # fmt: skip
            assert words[-1][1].endswith(f"Your part, {n + 1} of 3:\n\n{item}")
        heard = [t for k, t in shown(team, "Reducer") if k == "heard"]
        assert heard[-3:] == ["[Mapper]\na is fine.", "[Mapper]\nb is not.", "[Mapper]\nc is."]


def test_a_list_goes_on_where_it_was_cut_off(tmp_path):
    with made(tmp_path, MAPPED, safe_load(MAPREDUCE)) as team:
        team.set_task("Look.")
        for _ in range(3):
            asyncio.run(team.step())
    with made(tmp_path, MAPPED, safe_load(MAPREDUCE)) as team:
        assert team.run().ended == "done"
        assert shown(team, "Mapper", 1)[-1][1].endswith('Your part, 2 of 3:\n\n{"file": "b.py"}')


@pytest.mark.parametrize("reply", [["No list."], splits(*range(200 + 1))])
def test_a_list_that_never_comes_or_is_too_long_comes_to_an_end(tmp_path, reply):
    with made(tmp_path, {**MAPPED, "Splitter": [reply] * 9}, safe_load(MAPREDUCE)) as team:
        assert team.run("Look.").ended == "stopped"
        assert team.status.turns == 2
        assert "it may give a list at work.files" in team.status.why


def test_an_empty_list_is_an_answer(tmp_path):
    with made(tmp_path, {**MAPPED, "Splitter": [splits()]}, safe_load(MAPREDUCE)) as team:
        assert team.run("Look.").ended == "done"
        assert went(team) == ["Splitter", "Reducer"]


SPREAD = {"llm": (LLM, PICKED), "adversarial": (ADVERSARIAL, JUDGED),
          "scattergather": (SCATTER, EXPERTS), "mapreduce": (MAPREDUCE, MAPPED)}  # fmt: skip


@pytest.mark.parametrize("name", SPREAD)
def test_their_views_are_compared_and_their_keys_are_known(name, tmp_path):
    text, parts = SPREAD[name]
    with made(tmp_path, parts, safe_load(text)) as team:
        team.run("Work.")
        assert not [n for n in team.notes if "not known" in n]
        ended = [n for n in team.notes if "Termination (a team of type" in n]
        assert bool(ended) == (name == "scattergather")
        found = ck.compare(team, {"text": {"TextOnly": True}}).set_index(["agent", "view"])
        sent = sum(c.message.usage.prompt_tokens for x in team.lives for c in x.session.calls)
        assert found.loc[("all agents", "recorded"), "prompt_tokens"] == sent
        assert found.loc[("all agents", "shared"), "prompt_tokens"] >= sent
