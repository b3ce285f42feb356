"""What `opencode run --format json` prints."""

from __future__ import annotations

from synthetic_logs_current_layouts import OPENCODE_RUN

from ctxkit.formats import Source, read_source
from ctxkit.session import ToolCall


def test_steps_are_replies_with_their_usage():
    (session,) = read_source(Source("run.jsonl", OPENCODE_RUN))
    asked, result, said = session.messages
    assert asked.tool_calls == (ToolCall("c", "read", {"filePath": "a"}),)
    usage = asked.usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.cost_usd) == (
        7,
        5,
        5,
        0.5,
    )
    assert (result.call_id, result.text, said.text, said.usage) == ("c", "x", "It is x.", None)
    assert (session.id, asked.stop) == ("ses_a", "tool")
