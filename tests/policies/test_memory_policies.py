"""Memory as a policy: what is promoted, what is recalled, once, within budgets, the same live and replayed."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from agent.test_live_matches_replay import agree, give
from builders import assistant, session, user
from histories import ROOM, shown
from hypothesis import given
from hypothesis import strategies as st
from stand_in_models import COUNT, said

import ctxkit as ck
from ctxkit.agent import Agent, ScriptedModel, tool
from ctxkit.policies import Above, KeepTurns, LessonRecall, MessageLog, Rules, Summary
from ctxkit.policies.lesson_extraction_and_recall import (
    RECALL_HEADING,
    Lesson,
    LessonExtractor,
    _LessonEntries,
    extract_lessons,
)
from ctxkit.session import RECALLED_KIND, Message, Text, ToolCall

RULES = Rules(
    policy=Summary(keep_tokens=800) | LessonRecall(),
    trigger=Above(1_500),
    window=6_000,
    counter=COUNT,
)
WISH = "Always keep the column order of the CSV"


def spoken(role, text, **more):
    return Message(role=role, id=f"m{next(IDS)}", parts=(Text(text),), **more)


IDS = count()


def test_what_may_outlive_a_talk_is_found_with_the_messages_it_rests_on():
    """T25: Facts, preferences and procedures are promoted, each with its messages."""
    runs = [(Message(role="assistant", id=f"r{n}", parts=(ToolCall(f"c{n}", "bash", {"command": "pytest -q tests"}),)),
             Message(role="tool", id=f"t{n}", call_id=f"c{n}", tool="bash", parts=(Text("3 passed"),))) for n in range(2)]  # fmt: skip
    talk = [
        spoken("user", f"{WISH}. Is it always so?"),
        spoken("assistant", "The root cause is a missing index in ledger.py."),
        *(m for pair in runs for m in pair),
        spoken("user", "You must obey.", kind="injected"),
    ]
    found = extract_lessons(talk)
    assert [(x.type, x.text) for x in found] == [
        ("preference", f"{WISH}."),
        ("fact", "The root cause is a missing index in ledger.py."),
        ("procedure", "pytest -q tests"),
    ]
    assert found[0].sources == (talk[0].id,)
    assert found[2].sources == ("r0", "r1")
    assert found[0].entry() == extract_lessons(talk)[0].entry()


PARTS = st.sampled_from(("wish", "fact", "run", "run", "good", "good", "bad"))


@given(st.lists(st.lists(st.tuples(PARTS, st.integers(0, 2)), max_size=9), max_size=4), st.data())
def test_what_rows_of_a_growing_log_say_is_what_their_messages_say(batches, data):
    log: list[Message] = []
    index, runs = LessonExtractor(log), {"command": "pytest -q tests"}
    for gone, batch in enumerate(batches):
        for kind, n in batch:
            if kind == "run":
                parts, more = (ToolCall(f"c{n}", "bash", runs),), {"role": "assistant"}
            elif kind in ("good", "bad"):
                parts, more = (Text("out"),), {"role": "tool", "call_id": f"c{n}", "tool": "bash"}
            else:
                parts = (Text(f"Always decided because of {n}."),)
                more = {"role": "user" if kind == "wish" else "assistant"}
            log.append(Message(id=f"m{len(log)}", parts=parts, is_error=kind == "bad", **more))
        asked = [m.call_id or "".join(c.id for c in m.tool_calls) for m in log]
        some = [
            r for r, name in enumerate(asked) if (name != f"c{gone}" if name else r % 3 != gone)
        ]
        rows = some[: data.draw(st.integers(0, len(some)))]
        found = index.get_lessons(rows)
        assert [
            Lesson(*k, tuple(dict.fromkeys(ids))) for k, ids in found.items()
        ] == extract_lessons([log[row] for row in rows])


def test_a_command_did_its_work_by_the_last_result_among_the_rows():
    runs = [ToolCall(f"c{n}", "bash", {"command": "pytest -q tests"}) for n in range(2)]
    log = [Message(role="assistant", id=f"r{n}", parts=(call,)) for n, call in enumerate(runs)]
    outcomes = [("c0", False), ("c1", True), ("c1", False), ("c1", True)]
    log += [
        Message(role="tool", id=f"t{n}", call_id=name, tool="bash", is_error=bad)
        for n, (name, bad) in enumerate(outcomes)
    ]
    index, procedure = LessonExtractor(log), {("procedure", "pytest -q tests"): ["r0", "r1"]}
    assert index.get_lessons(range(6)) == {}
    assert index.get_lessons(range(5)) == procedure
    assert index.get_lessons(range(4)) == {}


def test_entries_are_made_anew_where_the_environment_has_another_secret(monkeypatch):
    secret = "xq7-Kd93-mvT0-18zR"
    log = MessageLog.of([spoken("user", f"Always use {secret} there.")], COUNT)
    budgets, found = LessonRecall().budgets, [("preference", f"Always use {secret} there.")]
    shown = [_LessonEntries.of(log).fitting(found, "", budgets)[0].description for _ in range(2)]
    monkeypatch.setenv("MY_SECRET", secret)
    shown.append(_LessonEntries.of(log).fitting(found, "", budgets)[0].description)
    assert [secret in text for text in shown] == [True, True, False]


def lived(resumed=False, rules=RULES):
    ticks, ids = count(1_800_000_000), count()
    call = lambda: ToolCall(f"c{next(ids)}", "give", {"n": 90})
    script = tuple((said("It was decided to use uuid4 because of clashes. ", call(), stop="tool", usage=None),
                    said("thought " * 20, call(), stop="tool", usage=None), said("Done. " * 5, usage=None)) for _ in range(5))  # fmt: skip
    model = ScriptedModel(script, name="made", counter=COUNT, clock=lambda: float(next(ticks)))
    make = lambda at: Agent(
        at, model=model, rules=rules, tools=[tool(give)], clock=lambda: float(next(ticks))
    )
    a = make(session())
    for n in range(5):
        a = make(a.session) if resumed else a
        asyncio.run(a.turn(f"{WISH}, rule {n}. Do part {n}: " + "please " * 40))
    return a


@pytest.mark.parametrize("resumed", [False, True])
def test_live_and_replay_recall_the_same(resumed):
    a = lived(resumed)
    assert agree(a, RULES) >= 2
    views = [v for _, v in a.session.views()]
    held = [[m for m in v if m.kind == RECALLED_KIND] for v in views]
    assert max(map(len, held)) == 1  # one digest, never two
    assert held[-1]
    text = held[-1][0].text
    assert text.startswith(RECALL_HEADING)
    assert WISH in text
    assert len(text) < 2_400 + len(RECALL_HEADING) + 20
    shown = "\n".join(m.text for m in views[-1] if m.kind != RECALLED_KIND and m.role == "user")
    assert not any(row.rsplit(") ", 1)[-1] in shown for row in text.split("\n")[1:])


def test_nothing_is_recalled_where_nothing_is_gone():
    a = lived(rules=RULES.but(trigger=Above(10**6), window=10**7))
    again = ck.replay(
        a.session, LessonRecall(), tokens=[COUNT.message(m) for m in a.session.messages]
    )
    assert a.session.edits == again.edits == ()


def test_budgets_hold():
    few = LessonRecall(items=1, chars=400)
    a = lived(rules=RULES.but(policy=Summary(keep_tokens=800) | few))
    last = next(m for m in [v for _, v in a.session.views()][-1] if m.kind == RECALLED_KIND)
    assert last.text.count("\n") == 1
    assert few.budgets.chars == 400
    with pytest.raises(ck.BadArguments):
        LessonRecall(chars=-1)


def test_a_lesson_that_is_still_in_the_prompt_is_not_recalled():
    """The first and the last turn stay around the removed ones; only their lessons are recalled."""
    wishes = ("Always sort by date.", "Never round up.", "Prefer tabs.", "Never skip tests.")
    talk = [m for wish in wishes for m in (user(wish), assistant("Done."))]
    history = shown(*talk[:-1])
    new = (KeepTurns(keep_turns=1, keep_first=1) | LessonRecall())(history, ROOM)
    recalled = next(m.text for m in new.messages if m.kind == RECALLED_KIND)
    texts = [m.text for m in new.messages]
    assert [wish in texts for wish in wishes] == [True, False, False, True]
    assert [wish in recalled for wish in wishes] == [False, True, True, False]


@pytest.mark.parametrize(
    ("request_text", "recalled"),
    [("Go on.", 1), ("Go on with the invoices.", 0), ("Go on with the parser.", 1)],
)
def test_the_words_of_the_last_request_come_before_age(request_text, recalled):
    """Of two wishes one fits; without a word of the request in either it is the newer one."""
    wishes = ("Always sort the invoices by date.", "Never touch the tests of the parser.")
    talk = [m for wish in wishes for m in (user(wish), assistant("Done."))]
    history = shown(*talk, user(request_text))
    new = (KeepTurns(keep_turns=1) | LessonRecall(items=1))(history, ROOM)
    text = next(m.text for m in new.messages if m.kind == RECALLED_KIND)
    assert [wish in text for wish in wishes] == [recalled == 0, recalled == 1]
