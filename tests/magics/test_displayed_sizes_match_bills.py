"""Every size of a live session that is shown is the one that its provider billed, whatever it takes for a token."""

from __future__ import annotations

import random
from itertools import count

import pytest
from agent.models.fake_provider_server import FORMATS, Play, wire
from magics.test_turn_display import Seen
from stand_in_models import run

import ctxkit as ck
from ctxkit.agent import LiveSession, ProviderModel, Workspace, tool
from ctxkit.magics.turn_display import LiveTurnDisplay
from ctxkit.metrics import count_groups_by_call, thrash
from ctxkit.plots import growth, savings_data, thrash_data
from ctxkit.tokens import find_call_of_current_size

pytestmark = pytest.mark.filterwarnings("default")
WINDOW = 200_000
WORDS = [
    "north",
    "had",
    "one",
    "row",
    "with",
    "a",
    "wrong",
    "sign",
    "and",
    "nobody",
    "looked",
    "before",
]
RATES = {"lower": 0.19, "equal": 0.25, "three times": 0.75}
"""Tokens that the server bills for a character; what is repetitive here counts as some 0.3."""
BY_COUNT = {"mode": "intent", "keep_recent_turns": 1, "trigger_turn_count": 4}


def prose(n: int, *, repetitive: bool = False) -> str:
    """Return so many words."""
    if repetitive:
        return "abcdefgh " * n
    return " ".join(random.Random(n).choices(WORDS, k=n))


def give(n: int, plain: bool = True) -> str:
    """Give so many words."""
    return prose(n, repetitive=not plain)


def steps(*sizes, rate, plain=True):
    """Return the plays of a turn: a call of the tool for each size, then an answer."""
    more = {"usage": "counted", "rate": rate}
    calls = [
        Play(text="I look.", calls=(("give", {"n": n, "plain": plain}),), **more) for n in sizes
    ]
    return [*calls, Play("It is done.", **more)]


class Watched:
    """A live session whose sizes are held against its server's account at every call."""

    def __init__(self, folder, up, rules):
        ticks = count(1_800_000_000)
        name, self.up = FORMATS[up.kind][0], up
        options = {"api_base": up.url, "api_key": "none"}
        model = ProviderModel(name, context_window=WINDOW, options=options)
        self.live = LiveSession("main", model=model, rules=rules, tools=[tool(give)],
                                clock=lambda: float(next(ticks)), workspace=Workspace(folder))  # fmt: skip
        self.live.listen(self._hear)
        self.calls, self.lines = 0, []

    def _hear(self, event):
        if event.kind == "model_response":
            self.calls += 1
            self.holds()
        elif event.kind == "compaction_end":
            self.lines.append(event.payload)

    def turn(self, prompt="go", *plays):
        if plays:
            self.up.plays[:] = plays
        view = Seen()
        with LiveTurnDisplay(self.live, view) as screen:
            ended = run(self.live.turn(prompt))
            self.holds(screen.turn.bar()[0], ended.context_tokens)
            assert f"context {self.up.account[-1]:,}/{WINDOW:,} " in ended.account()
        shown = repr(view.ended[0])
        assert f"{self.up.account[-1]:,}/{WINDOW:,} tokens" in shown
        return shown

    def holds(self, *sizes):
        """Hold every size of now, and those of all calls, against the account."""
        session, account = self.live.session, self.up.account
        assert len(session.calls) == len(account)
        frame = ck.frame(session, per="call")["prompt_tokens"].tolist()
        turns = ck.frame(session, per="turn")["context_tokens"]
        stacked = count_groups_by_call(session).groups.values()
        [line] = growth(session).drawing.traces[:1]
        assert frame == account == [sum(g[i] for g in stacked) for i in range(len(account))]
        assert list(line.y) == account
        assert turns.max() == max(account)
        shown = ck.report(session, find_call_of_current_size(session))
        assert shown.prompt_source == "recorded"
        assert ck.score(session, loss=False)["peak_tokens"] == max(account)
        assert {*sizes, self.live.agent.gauge()[0], shown.prompt_tokens} == {account[-1]}

    def compaction(self, number=-1):
        """Return what all views say of a compaction: size before and after, and where these come from."""
        session = self.live.session
        frame = ck.frame(session, per="compaction").iloc[number]
        before, after = int(frame["tokens_before"]), int(frame["tokens_after"])
        cut, saved = thrash(session).outcomes[number], 1 - after / before
        assert (cut.before, cut.after, cut.savings) == (before, after, pytest.approx(saved))
        drawn, tried = savings_data(session)[number], thrash_data(session).tries[number]
        assert (drawn.before, drawn.after, drawn.source) == (before, after, frame["tokens_source"])
        assert tried.saved == pytest.approx(saved) == frame["token_savings"]
        read = ck.frame(ck.read(self.live.log.path), per="compaction").iloc[number]
        assert read[["tokens_before", "tokens_after", "tokens_source"]].tolist() == [
            before, after, frame["tokens_source"]]  # fmt: skip
        return before, after, frame["tokens_source"]


@pytest.fixture(params=["chat", "anthropic"])
def watched(request, tmp_path):
    """Make a session with a server of one of two formats."""
    with wire(request.param, Play("never")) as up:
        made = []

        def make(**rules):
            made.append(Watched(tmp_path, up, ck.presets.fuseraft(**rules)))
            return made[-1]

        yield make
        for each in made:
            each.live.close()


@pytest.mark.parametrize("rate", RATES)
def test_a_compaction_by_its_trigger_is_sized_by_the_prompts_around_it(watched, rate):
    here = watched(**BY_COUNT)
    more = {"rate": RATES[rate], "plain": rate != "lower"}
    here.turn("go", *steps(900, 700, **more))
    shown = here.turn("more", *steps(rate=RATES[rate]), *steps(rate=RATES[rate]))
    assert "✂" not in shown
    shown = here.turn("and now", *steps(rate=RATES[rate]))
    was, now = here.up.account[-2:]
    assert f"✂ compacted {was:,} → {now:,} tokens (message_count)" in shown
    assert here.compaction() == (was, now, "recorded")
    [told] = here.lines
    assert (told["tokens_before"], told["tokens_source"]) == (was, "estimated")
    assert told["tokens_after"] == pytest.approx(now, rel=0.25)
    assert ck.score(here.live.session)["token_savings"] == pytest.approx(1 - now / was)


@pytest.mark.parametrize("rate", RATES)
def test_a_compaction_by_hand_is_an_estimate_until_the_next_prompt_is_sent(watched, rate):
    here = watched(mode="intent", keep_recent_turns=1, trigger_turn_count=500)
    more = {"rate": RATES[rate], "plain": rate != "lower"}
    here.turn("go", *steps(900, 700, **more))
    [edit] = run(here.live.compact())
    [was] = here.up.account[-1:]
    guess = here.live.agent.gauge()[0]
    assert (edit.tokens_before, edit.tokens_after) == (was, guess)
    assert 0 < guess < was
    assert (
        ck.report(here.live.session, find_call_of_current_size(here.live.session)).prompt_tokens
        == guess
    )
    frame = ck.frame(here.live.session, per="compaction").iloc[0]
    assert frame[["tokens_before", "tokens_after", "tokens_source"]].tolist() == [was, guess, "estimated"]  # fmt: skip
    here.turn("yes", *steps(rate=RATES[rate]))
    [now] = here.up.account[-1:]
    assert here.compaction() == (was, now, "recorded")
    assert guess == pytest.approx(now, rel=0.25)


@pytest.mark.parametrize("rate", RATES)
def test_a_compaction_within_a_turn_counts_what_came_since_the_last_prompt(watched, rate):
    here = watched(**BY_COUNT)
    more = {"rate": RATES[rate], "plain": rate != "lower"}
    shown = here.turn("go", *steps(900, 900, 900, 900, 900, **more))
    was, now = here.up.account[3:5]
    before, after, source = here.compaction(0)
    grown = here.up.account[3] - here.up.account[2]
    assert (after, source) == (now, "estimated")
    assert before == pytest.approx(
        was + grown, rel=0.02
    )  # with the last result, were it not for the compaction
    assert f"✂ compacted {before:,} → {now:,} tokens (message_count, estimated)" in shown


def test_a_long_prompt_after_a_compaction_by_hand_is_no_loss_of_it(watched):
    here = watched(mode="intent", keep_recent_turns=1, trigger_turn_count=500)
    here.turn("go", *steps(900, 700, rate=0.75))
    run(here.live.compact())
    was, long = here.up.account[-1], prose(5_000)
    here.turn(long, *steps(rate=0.75))
    before, after, source = here.compaction()
    assert (after, source) == (here.up.account[-1], "estimated")
    assert before == pytest.approx(was + 0.75 * len(long), rel=0.05)
    assert after < before


def test_under_prunings_it_is_the_pruned_prompt_that_is_compacted(watched):
    here = watched(mode="intent", keep_recent_turns=1, trigger_turn_count=500, offload_chars=1_000,
                   max_tail_messages=6)  # fmt: skip
    here.turn("go", *steps(900, 900, 900, 900, rate=0.25))
    whole = here.live.agent.compactor.context.tokens
    [edit] = run(here.live.compact())
    was = here.up.account[-1]
    assert edit.tokens_before == was < whole / 2
    here.turn("yes", *steps(rate=0.25))
    assert here.compaction() == (was, here.up.account[-1], "recorded")


def test_under_prunings_what_came_within_a_turn_is_pruned_too(watched):
    here = watched(**BY_COUNT, offload_chars=1_000)
    here.turn("go", *steps(900, 900, 900, 900, 900, rate=0.75))
    before, after, source = here.compaction(0)
    was, now = here.up.account[3:5]
    assert (after, source) == (now, "estimated")
    assert before == pytest.approx(was + was - here.up.account[2], rel=0.1)  # a stub more
    [told] = here.lines
    assert told["tokens_before"] == before
    assert told["tokens_after"] == pytest.approx(now, rel=0.25)


def test_two_compactions_without_a_prompt_between_them(watched):
    here = watched(mode="intent", keep_recent_turns=2, trigger_turn_count=500)
    here.turn("go", *steps(900, 700, rate=0.75))
    here.turn("on", *steps(800, rate=0.75))
    one, two = (ck.presets.fuseraft(mode="intent", keep_recent_turns=n).policy for n in (2, 1))
    [first], [second] = run(here.live.compact(one)), run(here.live.compact(two))
    was = here.up.account[-1]
    assert was == first.tokens_before > first.tokens_after == second.tokens_before
    assert second.tokens_after == here.live.agent.gauge()[0] > 0
    here.turn("yes", *steps(rate=0.75))
    [now] = here.up.account[-1:]
    rows = ck.frame(here.live.session, per="compaction")
    assert rows[["tokens_before", "tokens_after"]].to_numpy().tolist() == [
        [was, first.tokens_after], [first.tokens_after, now]]  # fmt: skip
    [cut] = thrash(here.live.session).outcomes
    assert (cut.before, cut.after) == (was, now)
