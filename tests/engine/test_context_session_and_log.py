"""A context's own session, and its log read back, say of each call what `fit` returned for it."""

from __future__ import annotations

import json

import pytest
from random_sessions import small

import ctxkit as ck
from ctxkit.metrics import count_groups_by_call
from ctxkit.policies import Clear, Rules
from ctxkit.presets import names


def read_call(n):
    call = {"name": "read_file", "arguments": json.dumps({"path": f"f{n % 5}.py"})}
    return [
        {"role": "assistant", "content": "I look.",
         "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": f"line {n}\n" * (20 + 90 * (n % 7))},
    ]  # fmt: skip


def talk(turns=4, reads=6):
    out = [{"role": "system", "content": "Be brief."}]
    for turn in range(turns):
        out.append({"role": "user", "content": f"Go on with part {turn}. " + "please " * 20})
        out += [m for n in range(reads) for m in read_call(turn * reads + n)]
        out.append({"role": "assistant", "content": f"Answer {turn}." + " word" * 30})
    return out


def run_loop(context, messages):
    """Return the prompts that a loop sends, one before each reply."""
    replies = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    prompts = [context.fit(messages[:i]) for i in replies]
    context.fit(messages)
    return prompts


def assert_session_has_sent(session, prompts):
    texts = [[m.get("content") or "" for m in prompt] for prompt in prompts]
    sent = [session.sent(call) for call in range(len(prompts))]
    assert [[i.message.text for i in items] for items in sent] == texts
    assert [[m.text for m in view] for _, view in session.views()] == texts
    assert [[m.text for m in session.view(call)] for call in range(len(prompts))] == texts
    sizes = [sum(i.tokens for i in items) for items in sent]
    assert [ck.report(session, call).prompt_tokens for call in range(len(prompts))] == sizes
    assert ck.score(session, loss=False)["prompt_tokens"] == sum(sizes)
    stacked = count_groups_by_call(session).groups.values()
    assert [sum(tokens[c] for tokens in stacked) for c in range(len(prompts))] == sizes
    assert not ck.frame(session, per="compaction")["kind"].eq("unmarked").any()
    return sizes


@pytest.mark.filterwarnings("ignore::UserWarning")  # some presets compact at each call here
@pytest.mark.parametrize("name", names())
def test_session_and_log_have_what_fit_returned(name, tmp_path):
    context, messages = ck.Context(small(name)), talk()
    prompts = run_loop(context, messages)
    own = context.session
    sizes = assert_session_has_sent(own, prompts)
    again = ck.replay(own, small(name))
    assert [sum(i.tokens for i in again.sent(c)) for c in range(len(prompts))] == sizes
    ck.write(own, tmp_path / "own.jsonl")
    log = ck.read(tmp_path / "own.jsonl")
    assert assert_session_has_sent(log, prompts) == sizes
    changed = lambda s: [
        {i.row: (i.raw_tokens, i.changed_by) for i in s.sent(c) if i.pruned}
        for c in range(len(prompts))
    ]
    assert changed(log) == changed(own)
    assert [log.left_out(c) for c in range(len(prompts))] == [
        own.left_out(c) for c in range(len(prompts))
    ]
    sent_tokens = [ck.frame(s, per="message")["sent_tokens"].tolist()[:-1] for s in (own, log)]
    assert sent_tokens[0] == sent_tokens[1]


def test_calls_without_a_reply_do_not_shift_the_others(tmp_path):
    context = ck.Context(Rules(pruning=Clear(keep_last=1)))
    messages, prompts = talk(2, 3), []
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            prompts.append(context.fit(messages[:i]))
        elif message["role"] == "tool":
            context.fit(messages[: i + 1])
            note = {"role": "user", "content": "The server did not answer: once more."}
            messages[i + 1 : i + 1] = [note] if i < 9 else []  # the second call clears a result
    context.fit(messages)
    assert len(context.session.calls) == len(prompts) < context.run.call
    assert_session_has_sent(context.session, prompts)
    ck.write(context.session, tmp_path / "own.jsonl")
    assert_session_has_sent(ck.read(tmp_path / "own.jsonl"), prompts)


def test_a_log_without_records_is_read_as_before(tmp_path):
    context = ck.Context(Rules(pruning=Clear(keep_last=1)))
    run_loop(context, talk())
    ck.write(context.session, tmp_path / "own.jsonl")
    lines = (tmp_path / "own.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        details = record.get("data", {}).get("message", {}).get("details", {})
        details.pop("pruned", None)
    (tmp_path / "old.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    old = ck.read(tmp_path / "old.jsonl")
    assert old.prompt_source is None
    assert not old.faults
    assert len(old.calls) == len(context.session.calls)
    assert old.messages[-1].parts == context.session.messages[-1].parts


@pytest.mark.parametrize("damage", [[], {"changes": "all"}, {"changes": [{"by": 3}]}, "cleared"])
def test_a_damaged_record_is_dropped(damage, tmp_path):
    context = ck.Context(Rules(pruning=Clear(keep_last=1)))
    prompts = run_loop(context, talk())
    ck.write(context.session, tmp_path / "own.jsonl")
    records = [json.loads(line) for line in (tmp_path / "own.jsonl").read_text().splitlines()]
    for record in records:
        details = record.get("data", {}).get("message", {}).get("details", {})
        if "pruned" in details:
            details["pruned"] = damage
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    bad = ck.read(tmp_path / "bad.jsonl")
    assert bad.prompt_source is None
    assert [len(bad.view(call)) for call in range(len(prompts))] == [len(p) for p in prompts]
