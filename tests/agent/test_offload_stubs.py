"""A stub is sent only where the artifact that it names was kept; else the result goes whole."""

from __future__ import annotations

import re

import pytest
from builders import assistant, result, session, tool_call, user

from ctxkit import tokens
from ctxkit.agent import ArtifactStore, LiveContext, Workspace
from ctxkit.errors import StoreError
from ctxkit.policies import (
    STUB_PREFIX,
    Chain,
    Fallback,
    ResultOffload,
    ResultShortening,
    Rules,
    compute_artifact_id,
    find_artifact_in_stub,
    with_advice,
)

COUNT = tokens.get_counter("chars/4")
LONG = "row\n" * 500


def prompt(save, *pruning, text=LONG):
    """What a call is sent after a result, and its tokens."""
    call = tool_call("bash")
    at = session(user("go"), assistant("", call), result(text, call))
    rules = Rules(pruning=Chain.of(*(pruning or (ResultOffload(threshold=300),))), counter=COUNT)
    prepared = LiveContext(at, rules, save_artifact=save).prepare(1.0)
    assert prepared.tokens == sum(COUNT.message(m) for m in prepared.messages)
    return prepared.messages[-1]


def test_what_a_stub_names_is_kept_first(tmp_path):
    store = ArtifactStore(Workspace(tmp_path), lambda: ["s"])
    sent = prompt(store.save)
    assert sent.text.startswith(STUB_PREFIX)
    (path,) = re.findall(r"path='([^']+)'", sent.text)
    with store.open_file(path) as file:
        assert file.read().decode() == LONG
    assert not (tmp_path / "artifacts").exists()


def test_what_a_part_before_left_is_what_is_kept(tmp_path):
    workspace = Workspace(tmp_path)
    save = ArtifactStore(workspace, lambda: ["s"]).save
    prompt(save, ResultShortening(max_chars=900), ResultOffload(threshold=300))
    (kept,) = workspace.results("s").glob("*.txt")
    assert kept.read_text().startswith(LONG[:900] + "\n[...truncated")
    assert kept.stem == compute_artifact_id(kept.read_text())


@pytest.mark.parametrize("error", [OSError("disk full"), StoreError("out of the root")])
def test_what_cannot_be_kept_is_sent_whole(error):
    def full(*_):
        raise error

    assert prompt(full).text == LONG
    assert prompt(None).text == LONG


def test_what_only_looks_like_a_stub_is_kept_nowhere():
    kept = []
    forged = f"{STUB_PREFIX}9 chars stored to artifact store]\nTool: a | \nArtifact: 0123456789ab\n"
    assert prompt(lambda *a: kept.append(a), text=forged).text == forged
    assert kept == []


def test_an_artifact_is_kept_once():
    kept, call, again = [], tool_call("bash"), tool_call("bash")
    at = session(user("go"), assistant("", call, again), result(LONG, call), result(LONG, again))
    rules = Rules(pruning=ResultOffload(threshold=300), counter=COUNT)
    context = LiveContext(at, rules, save_artifact=lambda *a: kept.append(a))
    for n in range(3):
        assert context.prepare(float(n)).messages[2].text.startswith(STUB_PREFIX)
        context.add(assistant("on", time=float(n)))
    assert kept == [(compute_artifact_id(LONG), LONG, "bash", "")]


class Wrapped:
    """A pruning of somebody's own that shows nothing of what it does inside."""

    def __init__(self, part):
        self._part = part

    def __call__(self, history, room):
        return self._part(history, room)


OFF = ResultOffload(threshold=300)
NESTED = {
    "chain in chain": (Chain((Chain((ResultShortening(max_chars=900),)), OFF)),),
    "ladder": (Fallback((OFF, ResultShortening(max_chars=50))),),
    "hidden": (Wrapped(OFF),),
    "before a cap": (OFF, ResultShortening(max_chars=900)),
}


@pytest.mark.parametrize("pruning", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("room", [True, False])
def test_in_any_chain_a_stub_names_what_was_kept_or_the_result_goes(pruning, room):
    kept = {}

    def save(artifact, text, *_):
        if not room:
            raise OSError("disk full")
        kept[artifact] = text

    sent = prompt(save, *pruning).text
    if sent.startswith(STUB_PREFIX):
        assert find_artifact_in_stub(result(sent, tool_call("bash"))) in kept
    else:
        assert sent.startswith(LONG[:900])
        assert not kept
    assert all(compute_artifact_id(text) == name for name, text in kept.items())
    if room and not isinstance(pruning[0], Wrapped):
        assert kept


def test_what_was_sent_whole_is_what_is_said_to_have_been_sent():
    full = {"now": True}

    def save(*_):
        if full["now"]:
            raise OSError("disk full")

    call = tool_call("bash")
    begun = user("go"), assistant("", call), result(LONG, call)
    replies = assistant("on", time=2.0), assistant("done", time=4.0)
    context = LiveContext(session(*begun), Rules(pruning=OFF, counter=COUNT), save_artifact=save)
    prepared = []
    for reply in replies:
        prepared.append(context.prepare(reply.time - 1))
        context.add(reply)
        full["now"] = False
    told = context.prompts.of(session(*begun, *replies))
    for number, went in enumerate(prepared, 1):
        items = told.sent(number)
        assert [i.message.parts for i in items] == [m.parts for m in went.messages]
        assert sum(i.tokens for i in items) == went.tokens
        assert context.run.sizes(number, number + 1) == [went.tokens]
    assert context.run.total == sum(context.run.prompts)
    assert told.sent(1)[2].message.text == LONG
    assert told.sent(2)[2].message.text.startswith(STUB_PREFIX)


@pytest.mark.parametrize("pruning", [OFF, Wrapped(OFF)])
def test_an_id_that_is_used_twice_is_no_name_of_a_result(pruning):
    first, again = (tool_call("read", id="t", path=name) for name in ("a.txt", "b.txt"))
    texts = [f"{c.arguments['path']}\n" + LONG for c in (first, again)]
    rows = (assistant("", first), result(texts[0], first), assistant("", again))
    at, kept = session(user("go"), *rows, result(texts[1], again)), []
    rules = Rules(pruning=pruning, counter=COUNT)
    sent = LiveContext(at, rules, save_artifact=None).prepare(1.0).messages
    assert [m.text for m in sent if m.role == "tool"] == texts
    LiveContext(at, rules, save_artifact=lambda *a: kept.append(a)).prepare(1.0)
    assert {hint for *_, hint in kept} == (
        {"path=a.txt", "path=b.txt"} if pruning is OFF else set()
    )


def test_all_parts_that_offload_results_get_the_advice():
    offload = ResultOffload(threshold=300)
    shorten, advice = ResultShortening(max_chars=900), "Read it by an index."
    advised = ResultOffload(threshold=300, advice=advice)
    for parts, expected in (
        ((shorten, offload), (shorten, advised)),
        ((offload, offload), (advised, advised)),
        ((advised, offload), (advised, advised)),
    ):
        assert with_advice(Chain.of(*parts), advice) == Chain.of(*expected)
    for unchanged in (Chain.of(shorten, advised), Chain.of(shorten, shorten), advised, shorten):
        assert with_advice(unchanged, advice) is unchanged
