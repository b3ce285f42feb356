"""Server-side compaction and clearing of Anthropic: read, billed, and gone from the prompt."""

from __future__ import annotations

import json

import pytest

import ctxkit as ck
from ctxkit.session import SizeOnly

OPUS = "claude-opus-5-5"
SUMMARY = "Summary: the parser was mended in parse.py, tests are green."
BLOCK = {"type": "compaction", "content": SUMMARY}


def user(text):
    return {"role": "user", "content": text}


def assistant(*blocks):
    return {"role": "assistant", "content": [b if isinstance(b, dict) else text(b) for b in blocks]}


def text(words):
    return {"type": "text", "text": words}


def usage(prompt, output, *iterations):
    own = {"input_tokens": prompt, "output_tokens": output}
    if not iterations:
        return own
    rows = [{"type": "compaction", "input_tokens": i, "output_tokens": o} for i, o in iterations]
    return {**own, "iterations": [*rows, {"type": "message", **own}]}


def record(messages, content, used, stop="end_turn", **request):
    return {
        "request": {"model": OPUS, "system": "Be exact.", "messages": messages, "max_tokens": 9, **request},
        "response": {"id": f"msg_{len(messages)}", "type": "message", "role": "assistant", "model": OPUS,
                     "content": content, "stop_reason": stop, "usage": used},
    }  # fmt: skip


def read(tmp_path, *records):
    path = tmp_path / "calls.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    return ck.read(path)


LONG = "all about the parser " * 400


def test_a_block_that_heads_a_reply_is_a_compaction_with_a_cost_of_its_own(tmp_path):
    """The documentation's example: 180,000 and 3,500 tokens that the top-level usage leaves out."""
    asked = [user(LONG), assistant("Read."), user("Go on.")]
    s = read(
        tmp_path, record(asked, [BLOCK, text("Done.")], usage(23_000, 1_000, (180_000, 3_500)))
    )
    (edit,) = s.edits
    assert (edit.kind, edit.tokens_before, edit.usage.prompt_tokens) == (
        "summarised",
        180_000,
        180_000,
    )
    assert [m.text for m in edit.inserted] == [SUMMARY]
    row = ck.frame(s, per="compaction").iloc[0]
    assert row["cost_usd"] == pytest.approx(180_000 * 4e-6 + 3_500 * 20e-6)
    assert ck.spend(s).total_usd == pytest.approx(0.902, abs=1e-3)


def test_what_the_api_dropped_is_in_no_later_prompt(tmp_path):
    """The client sends the whole history again; two calls, 42,000 tokens summarised."""
    first = [user(LONG), assistant("Read."), user("Go on.")]
    reply = [BLOCK, text("Done.")]
    then = [*first, assistant(*reply), user("And now?")]
    s = read(
        tmp_path,
        record(first, reply, usage(400, 60, (42_000, 300))),
        record(then, [text("Nothing.")], usage(450, 20)),
    )
    assert len(s.edits) == 1
    assert [m.text for m in s.view(-1)] == ["Be exact.", SUMMARY, "Done.", "And now?"]
    calls = (850 * 4e-6) + 80 * 20e-6
    assert ck.spend(s).total_usd == pytest.approx(calls + 42_000 * 4e-6 + 300 * 20e-6)


def test_a_summary_on_demand_keeps_the_turns_behind_it(tmp_path):
    old, kept = [user(LONG), assistant("Read.")], [user("Go on."), assistant("Done.")]
    s = read(
        tmp_path,
        record(old[:1], [text("Read.")], usage(9_000, 10)),
        record([*old, kept[0]], [text("Done.")], usage(9_100, 10)),
        record(
            old, [BLOCK], usage(9_050, 200), stop="compaction", compaction={"type": "summarize"}
        ),
        record([assistant(BLOCK), *kept, user("And now?")], [text("Nothing.")], usage(500, 10)),
    )
    (edit,) = s.edits
    assert (edit.trigger, edit.usage.prompt_tokens, edit.usage.output_tokens) == (
        "manual",
        9_050,
        200,
    )
    view = [m.text for m in s.view(-1)]
    assert view == ["Be exact.", SUMMARY, "Go on.", "Done.", "And now?"]
    assert len(s.calls) == 3


def test_a_summary_that_no_request_used_is_paid_for(tmp_path):
    asked = [user(LONG)]
    s = read(
        tmp_path,
        record(asked, [text("Read.")], usage(9_000, 10)),
        record(
            asked, [BLOCK], usage(9_050, 200), stop="compaction", compaction={"type": "summarize"}
        ),
    )
    (edit,) = s.edits
    assert not edit.targets
    assert ck.spend(s).total_usd == pytest.approx(18_050 * 4e-6 + 210 * 20e-6)


def test_a_sealed_summary_has_no_size(tmp_path):
    sealed = {"type": "compaction", "encrypted_content": "x" * 4_000}
    asked = [user(LONG), assistant("Read."), user("Go on.")]
    s = read(tmp_path, record(asked, [sealed, text("Done.")], usage(400, 60)))
    (edit,) = s.edits
    (part,) = edit.inserted[0].parts
    assert part == SizeOnly("compaction")
    row = ck.frame(s, per="compaction").iloc[0]
    assert row[["summary_tokens", "cost_usd"]].isna().all()


def test_results_that_the_api_cleared_are_cleared(tmp_path):
    def call(n):
        return [
            assistant(
                {"type": "tool_use", "id": f"t{n}", "name": "read", "input": {"path": f"{n}.py"}}
            ),
            user([{"type": "tool_result", "tool_use_id": f"t{n}", "content": f"body {n} " * 200}]),
        ]

    asked = [user("Read all."), *call(1), *call(2), *call(3)]
    made = record(asked, [text("Read.")], usage(500, 10))
    made["response"]["context_management"] = {
        "applied_edits": [
            {
                "type": "clear_tool_uses_20250919",
                "cleared_tool_uses": 2,
                "cleared_input_tokens": 900,
            }
        ]
    }
    again = record([*asked, assistant("Read."), user("More.")], [text("So.")], usage(600, 10))
    again["response"]["context_management"] = made["response"]["context_management"]
    s = read(tmp_path, made, again)
    (edit,) = s.edits
    assert (edit.kind, edit.method, len(edit.targets)) == (
        "replaced",
        "clear_tool_uses_20250919",
        2,
    )
    assert (edit.trigger, edit.details) == ("auto", {"cleared_input_tokens": 900})
    results = [m.text for m in s.view(-1) if m.role == "tool"]
    assert results[:2] == ["[cleared by the API]"] * 2
    assert results[2].startswith("body 3")
