"""A summary that failed is said to have failed: in the event, the edit and the frame, under every preset."""

from __future__ import annotations

import asyncio
import gc
import re
from contextlib import contextmanager
from inspect import signature

import pytest
from agent.models.fake_provider_server import FORMATS, Play, wire
from builders import assistant, session, step, user
from presets.test_contract_presets import SMALL
from stand_in_models import COUNT, Says, agent, live, run, said

import ctxkit as ck
from ctxkit import presets
from ctxkit.agent import ProviderModel
from ctxkit.errors import ModelError
from ctxkit.policies import (
    Fallback,
    HybridSummary,
    Rules,
    Summary,
    iter_summary_writers,
    offline_summarisers,
)
from ctxkit.presets import preset

pytestmark = pytest.mark.filterwarnings("default")  # LiteLLM leaves connections to be collected
KEY = "sk-ant-api03-" + "Ab3dEf6hIj9k" * 8
ERRORS = {
    "raises": "no route",
    "answers 401": "Incorrect API key",
    "answers empty": "returned nothing",
    "times out": "longer than",
}


class Asked:
    """A model that counts how often it was asked."""

    name, notice, context_window = "test/bad", "", 50_000

    def __init__(self, answer):
        self.n, self._answer = 0, answer

    async def __call__(self, request, emit):
        self.n += 1
        return await self._answer(request, emit)


async def _raises(*_):
    raise RuntimeError(f"no route to {KEY} " + "x" * 5_000)


async def _is_silent(*_):
    return said("", usage=None)


async def _sleeps(*_):
    await asyncio.sleep(60)


@contextmanager
def failing(how):
    """Give a model that fails in one of four ways."""
    if how == "answers 401":
        with wire("chat", Play(status=401, said="Incorrect API key provided")) as up:
            options = {"api_base": up.url, "api_key": "none"}
            yield Asked(ProviderModel(FORMATS["chat"][0], context_window=50_000, options=options))
        gc.collect()  # what it left open warns here, where that is allowed
    else:
        yield Asked({"raises": _raises, "answers empty": _is_silent, "times out": _sleeps}[how])


def long(result="y" * 300):
    """Thirty turns, each with a tool."""
    turns = [
        (user(f"{i} " + "x" * 300), *step(text=result), assistant("z" * 300)) for i in range(30)
    ]
    return session(*(m for turn in turns for m in turn))


def compacted(rules, model=None, seconds=300.0):
    """Compact by hand; return the edits, how that ended by its event, and the frame."""
    heard = []
    rules = rules.but(counter=COUNT, window=1_500, assumed=True, reserve=200)
    one = agent(at=long(), model=Says(), rules=rules, heard=heard, summary_model=model,
                summary_seconds=seconds)  # fmt: skip
    one.model.notice = ""
    try:
        edits = run(one.compact())
    except ModelError:
        edits = ()
    ended = [e.payload for e in heard if e.kind == "compaction_end"][-1]
    return edits, ended, ck.frame(one.session, per="compaction")


def says_that_it_failed(edits, ended, frame, error):
    """Hold a compaction whose summary failed; True where something is in its place."""
    assert ended["outcome"] == "failed"
    assert error in ended["error"]
    assert KEY not in str(ended) + str(edits) + frame.to_string()
    assert len(ended["error"]) <= 300
    assert frame["compaction"].notna().tolist() == [bool(edits)]
    assert ("messages" in ended) == bool(edits)
    assert all(error in row for row in frame["error"])
    return bool(edits)


def holds(rules, model, how):
    """Hold a compaction under rules against whether the model was asked; True where it was."""
    edits, ended, frame = compacted(rules, model, 0.05 if how == "times out" else 300.0)
    if model.n:
        says_that_it_failed(edits, ended, frame, ERRORS[how])
        assert set(frame["model"]) <= {model.name}
    else:
        assert ended["outcome"] in ("compacted", "skipped")
        assert "error" not in ended
        assert frame.loc[frame["compaction"].notna(), "error"].isna().all()
        assert frame["model"].isna().all()
    return bool(model.n)


def fails(_passage):
    raise ModelError(f"no route to {KEY}")


def settings_of(name):
    """Return small settings of a preset, one for each mode where it has several."""
    known = signature(getattr(presets, name)).parameters.get("mode")
    modes = re.findall(r"'(\w+)'", str(known.annotation)) if known else []
    return [{**SMALL[name], "mode": m} for m in modes] or [SMALL[name]]


def own_limit(name, how):
    """Return a short time limit where the preset has one of its own."""
    has_limit = "timeout_seconds" in signature(getattr(presets, name)).parameters
    return {"timeout_seconds": 0.05} if has_limit and how == "times out" else {}


def writes(rules):
    """Say whether rules have a summary written by whom they name or are lent."""
    return rules.policy is not None and any(
        map(offline_summarisers.may_call_model, iter_summary_writers(rules.policy))
    )


@pytest.mark.parametrize("how", ERRORS)
def test_a_summary_model_that_fails_is_told_under_every_preset(how):
    asked = set()
    with failing(how) as model:
        for name in presets.names():
            for settings in settings_of(name):
                model.n = 0
                if holds(preset(name, **settings, **own_limit(name, how)), model, how):
                    asked.add(name)
    rules = {n: preset(n, **SMALL[n]).but(summariser=fails) for n in presets.names()}
    # without a policy all but the newest turn is summarised
    assert asked == {n for n, r in rules.items() if writes(r) or r.policy is None}


def test_a_summary_that_fails_within_a_turn_is_told_under_every_preset():
    """The compaction is due by itself here, where the tests above compact by hand."""
    left_whole, replaced = set(), set()
    for name in presets.names():
        for settings in settings_of(name):
            events, model = [], Asked(_raises)
            rules = preset(name, **settings).but(
                counter=COUNT, window=1_500, assumed=True, reserve=200
            )
            one = agent(at=long(), model=Says(said("Done.")), rules=rules, heard=events,
                        summary_model=model)  # fmt: skip
            one.model.notice = ""
            run(one.turn("Go on."))
            if not model.n:
                continue
            ended = [e.payload for e in events if e.kind == "compaction_end"]
            failed = [e for e in ended if e["outcome"] == "failed"]
            assert failed, (name, settings, ended)
            assert all("no route to" in e["error"] for e in failed)
            assert KEY not in str(ended)
            (replaced if "messages" in failed[0] else left_whole).add(name)
    assert left_whole
    assert replaced


@pytest.mark.parametrize(
    "name",
    [n for n in presets.names() if "summariser" in signature(getattr(presets, n)).parameters],
)
def test_a_summariser_of_the_rules_that_fails_is_told(name):
    made = [preset(name, **settings, summariser=fails) for settings in settings_of(name)]
    assert any(map(writes, made))
    for rules in filter(writes, made):
        says_that_it_failed(*compacted(rules), "no route")


def has_form(policy):
    """Say whether a policy puts something else in the place of a summary that fails."""
    return hasattr(policy, "on_failure") or isinstance(policy, (Fallback, HybridSummary))


@pytest.mark.parametrize(
    "policy",
    [
        *(p for n in presets.names() if has_form(p := preset(n, **SMALL[n]).bare)),
        preset("fuseraft", **SMALL["fuseraft"], mode="hybrid").bare,
        HybridSummary(keep_turns=2),
        Summary(keep_turns=2, otherwise=lambda p: f"[none: {p.instructions}]", prefix="Before: "),
    ],
    ids=lambda p: repr(p).partition(" at 0x")[0],
)
def test_what_stands_in_the_place_of_a_failed_summary_is_no_success(policy):
    rules = Rules(policy=policy, summariser=fails)
    if type(policy).__name__ == "TyrumSummary":
        rules = preset("tyrum", **SMALL["tyrum"], summariser=fails)
    assert says_that_it_failed(*compacted(rules), "no route")


def test_a_summary_that_comes_about_after_a_failure_is_none():
    answers = iter([ModelError("too long", overflow=True), said("The notes.")])

    async def answer(*_):
        reply = next(answers)
        if isinstance(reply, ModelError):
            raise reply
        return reply

    model = Asked(answer)
    edits, ended, frame = compacted(preset("fuseraft", **SMALL["fuseraft"]), model)
    assert model.n == 2
    assert (ended["outcome"], "error" in ended) == ("compacted", False)
    assert frame["error"].isna().all()
    assert "The notes." in edits[0].inserted[0].text


def test_an_error_is_not_said_again_by_the_compactions_after_it():
    heard = []
    replies = [ModelError("down"), *[said("The notes.")] * 9]
    rules = preset("fuseraft", **SMALL["fuseraft"]).but(counter=COUNT)
    one = agent(at=long(), rules=rules, heard=heard, summary_model=Says(*replies))
    run(one.compact())
    for n in range(4):
        run(one.turn(f"{n} " + "more " * 90))
    run(one.compact())
    ended = [e.payload["outcome"] for e in heard if e.kind == "compaction_end"]
    assert ended[0] == "failed"
    assert set(ended[1:]) == {"compacted"}
    assert ck.frame(one.session, per="compaction")["error"].notna().sum() == 1


@pytest.mark.parametrize("how", ERRORS)
def test_a_result_whose_summary_fails_is_told_and_stands_as_an_excerpt(how, monkeypatch):
    heard = []
    rules = presets.ai(context_window=50_000, tool_call_cutoff=2, tool_summary_strategy="llm")
    monkeypatch.setattr(
        "ctxkit.agent.model_summaries_and_backoff.SUMMARY_SECONDS",
        0.05 if how == "times out" else 300,
    )
    with failing(how) as model:
        one = agent(at=long("y" * 4_000), rules=rules, heard=heard, summary_model=model)
        run(one.turn("go"))
    assert model.n == 1
    ended = [e.payload for e in heard if e.kind == "compaction_end"]
    assert [e["outcome"] for e in ended] == ["failed"]
    assert ended[0]["trigger"] == "tool_summary"
    assert ERRORS[how] in ended[0]["error"]
    assert one.session.edits == ()
    assert len([m for m in one.model.asked[0].messages if m.text.startswith("[Tool output")]) == 28


def test_a_turn_behind_a_failed_summary_is_marked_as_one_behind_a_compaction(tmp_path):
    """also in the log of snapshots, from which budgets are drawn"""
    rules = preset("fuseraft", **SMALL["fuseraft"]).but(counter=COUNT)
    replies = [said("word " * 90)] * 9
    with live(
        tmp_path, *replies, rules=rules, summary_model=Says(*[ModelError("down")] * 9)
    ) as one:
        for n in range(7):
            run(one.turn(f"{n} " + "more " * 90))
        assert ck.frame(one.session, per="compaction")["error"].tolist() == ["down"]
        assert one.turns["compaction_occurred"].tolist() == [False] * 5 + [True, False]
        logged = ck.read_snapshots(one.workspace.snapshots(one.id))
        marker = logged[logged["compaction_occurred"]]
        assert marker[["agent", "turn"]].to_numpy().tolist() == [["system", 6]]
