"""Golden values of Pi 0.58.3 on the real session `before-compaction.jsonl`, obtained by running its source."""

import json

import pytest

from ctxkit.messages import Image, Message, Text, Thinking, ToolCall
from ctxkit.policies import cuts
from ctxkit.tokens import PI

PARTS = {
    "text": lambda p: Text(p["text"]),
    "thinking": lambda p: Thinking(p["thinking"]),
    "toolCall": lambda p: ToolCall(p["id"], p["name"], p["arguments"]),
    "image": lambda p: Image(),
}
KINDS = {"toolResult": "tool", "bashExecution": "bash"}


def parts(content):
    return (Text(content),) if isinstance(content, str) else tuple(PARTS[p["type"]](p) for p in content)


@pytest.fixture(scope="module")
def entries(real):
    kinds, sizes, kept = [], [], []
    for line in (real / "pi" / "before-compaction.jsonl").read_text().splitlines()[1:]:
        e = json.loads(line)
        if e["type"] != "message":
            kinds.append("compaction" if e["type"] == "compaction" else "change")
            sizes.append(0)
            kept += [(len(kinds), e["firstKeptEntryIndex"] - 1)] if e["type"] == "compaction" else []
            continue
        m = e["message"]
        kinds.append(KINDS.get(m["role"], m["role"]))
        if m["role"] == "bashExecution":
            sizes.append(PI(m["command"] + m["output"]))
        else:
            sizes.append(
                PI.message(Message(role={"toolResult": "tool"}.get(m["role"], m["role"]), parts=parts(m["content"])))
            )
    return kinds, sizes, kept


def test_all_estimates_add_up(entries):
    kinds, sizes, _ = entries
    assert (len(kinds), sum(sizes)) == (1002, 375427)


@pytest.mark.parametrize(
    ("keep", "cut"),
    [
        (1000, (1000, 1000)),
        (5000, (1000, 1000)),
        (20000, (946, 939)),
        (50000, (790, 789)),
        (100000, (690, 677)),
        (10**9, (0, -1)),
    ],
)
def test_the_cut_is_pis(entries, keep, cut):
    kinds, sizes, _ = entries
    assert cuts.pi(kinds, sizes, keep) == cut


def test_what_the_third_compaction_would_summarise(entries):
    """306 messages and a prefix of 7; mended, from the kept part of the second on, 383."""
    kinds, sizes, kept = entries
    start, first = kept[-1]
    cut = cuts.pi(kinds, sizes, 20000, start)

    def messages(a, b):
        return sum(k in cuts.COSTED for k in kinds[a:b])

    assert (messages(start, cut.turn), messages(cut.turn, cut.first), messages(first, cut.turn)) == (306, 7, 383)
