"""Messages that an edit inserts again as they were are not affected by it."""

from __future__ import annotations

import pytest
from builders import assistant, session, user
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.session import Edit, Text


def user_messages(messages):
    return [m.id for m in messages if m.role == "user"]


def test_messages_that_come_back_unchanged_are_not_counted():
    replay = ck.replay(ck.samples.path("billing"), "codex")
    [edit] = replay.edits
    stayed = set(user_messages(edit.inserted)) & set(edit.targets)
    assert len(stayed) > 5  # Codex names all it looks at, and keeps what the user said
    [affected] = ck.frame(replay, per="compaction")["affected_messages_n"]
    assert affected == len(set(edit.targets)) - len(stayed)


def test_messages_that_come_back_shorter_are_counted():
    asked, pasted, reply = user("Fix it."), user("x" * 400), assistant()
    cut = replace(pasted, parts=(Text("x" * 40),))
    edit = Edit(
        kind="summarised",
        id="e",
        targets=(asked.id, pasted.id, reply.id),
        inserted=(asked, cut, user("So far: nothing.")),
    )
    log = session(asked, pasted, reply, edit, user(), assistant())
    assert ck.frame(log, per="compaction")["affected_messages_n"].tolist() == [2]


@pytest.mark.long
@pytest.mark.parametrize("name", ck.presets.names())
def test_the_diff_changes_as_many_messages(name):
    replay = ck.replay(ck.samples.path("billing"), name)
    for number, affected in enumerate(ck.frame(replay, per="compaction")["affected_messages_n"]):
        table = ck.plots.diff(replay, number).rows
        assert sum("inserted" not in row for row in table) == affected
        if number == 2:  # three are enough
            break


@pytest.mark.parametrize("name", ["ai", "tyrum"])
def test_the_diff_removes_as_many_tokens_where_a_pruning_acts_on_what_is_new(name):
    replay = ck.replay(ck.samples.path("billing"), name)
    frame = ck.frame(replay, per="compaction")
    removed = (frame["tokens_before"] - frame["tokens_after"])[frame["call"].notna()]
    assert len(removed) > 0
    for number, tokens in removed.items():
        sizes = [
            [int(n.replace(",", "")) for n in row[3:5]]
            for row in ck.plots.diff(replay, number).rows
        ]
        assert sum(before - after for before, after in sizes) == tokens
