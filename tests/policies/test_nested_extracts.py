"""Extracts of extracts repeat no tag, and keep the rules that the user set."""

from __future__ import annotations

import pytest

import ctxkit as ck
from ctxkit.policies import Rules, Summary, triggers

RULE = "Never touch prod. The ticket is T-991."


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["summary", "pi", "claude_code", "openclaw"])
def test_the_users_rule_lives_through_many_summaries(name):
    rules = Rules(Summary(keep_tokens=4_000), triggers.Share(0.7))
    context = ck.Context(rules if name == "summary" else name, limit=48_000)
    messages = [{"role": "user", "content": RULE}]
    for n in range(60):
        call = {"name": "read_file", "arguments": f'{{"path": "f{n}.py"}}'}
        text = "".join(f"def part_{n}_{i}(value): return value + {i}\n" for i in range(200))
        prompt = context.fit(messages)
        messages += [
            {"role": "assistant", "content": f"I read file {n}.",
             "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": text},
        ]  # fmt: skip
    sent = "\n".join(m.get("content") or "" for m in prompt)
    assert len(context.edits) > 3
    assert "Earlier: Earlier:" not in sent
    assert "Never touch prod" in sent
    assert "T-991" in sent
