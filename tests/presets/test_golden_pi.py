"""Golden values of Pi 0.58.3 on the real session `before-compaction.jsonl`, from running its source.

Each is held on the oracle and on the shipped preset: the file as our reader has it, under
`presets.pi`. Replies that were broken off are entries for Pi; never sent, they are no rows here.
"""

import json

import pytest
from pi_oracle import COSTED, pi

from ctxkit import presets, read
from ctxkit.engine import make_log_from_session
from ctxkit.policies import History
from ctxkit.session import Attachment, Message, Text, Thinking, ToolCall
from ctxkit.tokens import PI

PARTS = {
    "text": lambda p: Text(p["text"]),
    "thinking": lambda p: Thinking(p["thinking"]),
    "toolCall": lambda p: ToolCall(p["id"], p["name"], p["arguments"]),
    "image": lambda p: Attachment(),
}
KINDS = {"toolResult": "tool", "bashExecution": "bash"}


def parts(content):
    return (
        (Text(content),)
        if isinstance(content, str)
        else tuple(PARTS[p["type"]](p) for p in content)
    )


@pytest.fixture(scope="module")
def entries(real):
    kinds, sizes, kept = [], [], []
    for line in (real / "pi" / "before-compaction.jsonl").read_text().splitlines()[1:]:
        e = json.loads(line)
        if e["type"] != "message":
            kinds.append("compaction" if e["type"] == "compaction" else "change")
            sizes.append(0)
            kept += (
                [(len(kinds), e["firstKeptEntryIndex"] - 1)] if e["type"] == "compaction" else []
            )
            continue
        m = e["message"]
        kinds.append(KINDS.get(m["role"], m["role"]))
        if m["role"] == "bashExecution":
            sizes.append(PI(m["command"] + m["output"]))
        else:
            sizes.append(
                PI.message(
                    Message(
                        role={"toolResult": "tool"}.get(m["role"], m["role"]),
                        parts=parts(m["content"]),
                    )
                )
            )
    return kinds, sizes, kept


@pytest.fixture(scope="module")
def shipped(real, entries):
    """The log that the preset works on, and for each of its rows the number of Pi's entry."""
    session = read(real / "pi" / "before-compaction.jsonl")
    said = [i for i, kind in enumerate(entries[0]) if kind in COSTED]
    rows = [i for i, m in zip(said, session.messages, strict=True) if m.visible]
    log = make_log_from_session(session, presets.pi(version="0.58.3", quirks=True))
    log.open()
    return log, rows


def policy(keep, quirks=True):
    return presets.pi(
        version="0.58.3", keep_recent_tokens=keep, context_window=2 * 10**9, quirks=quirks
    ).policy


def test_all_estimates_add_up(entries, shipped):
    kinds, sizes, _ = entries
    assert (len(kinds), sum(sizes)) == (1002, 375427)
    log, rows = shipped
    other = {
        entry: message
        for entry, message, size in zip(rows, log.messages, log.estimates.sizes, strict=True)
        if size != sizes[entry]
    }
    commands = [m for m in other.values() if m.kind == "bash"]  # our words are around them
    behind = [  # a reply that was broken off
        entry
        for entry, message in other.items()
        if entry - 1 not in rows and kinds[entry - 1] == "assistant" and message.kind != "bash"
    ]
    assert (len(commands), len(behind), len(other)) == (3, 1, 4)
    ours = sum(log.estimates.sizes)
    assert 0 <= ours - sum(sizes) <= 5 * len(commands)


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
def test_the_cut_is_pis(entries, shipped, keep, cut):
    kinds, sizes, _ = entries
    assert pi(kinds, sizes, keep) == cut
    log, rows = shipped
    history, rules = History.start(log, log.calls - 1), policy(keep)
    first = rules.find_cut(history, None)
    assert rows[first] == cut[0]
    began = cut[1] if kinds[cut[0]] == "assistant" else 0  # a command begins a turn of its own
    assert rows[rules.find_split_turn(history, first)] == max(began, rows[0])


def test_what_the_third_compaction_would_summarise(entries, shipped):
    """306 messages and a prefix of 7; mended, from the kept part of the second on, 383."""
    kinds, sizes, kept = entries
    start, first = kept[-1]
    cut = pi(kinds, sizes, 20000, start)

    def messages(a, b):
        return sum(k in COSTED for k in kinds[a:b])

    counted = messages(start, cut.turn), messages(cut.turn, cut.first), messages(first, cut.turn)
    assert counted == (306, 7, 383)
    log, rows = shipped
    second, _ = log.recorded[-1]
    before = History.start(log, second)
    after = before.summarise(next(i for i, e in enumerate(rows) if e >= first), "S", "recorded")
    history = after.at(log.calls - 1)

    def summarised(quirks):
        found = policy(20000, quirks)
        passages = found.passages(history, found.find_cut(history, None))
        return [sum(m.role != "summary" for m in p.messages) for p in passages]

    def unsent(a, b):
        return messages(a, b) - sum(a <= e < b for e in rows)

    assert (unsent(start, cut.turn), unsent(cut.turn, cut.first)) == (3, 0)
    assert kinds[start] == "user"  # Pi compacts before a prompt; here its call has it already
    assert summarised(quirks=True) == [306 - 3, 7]
    assert summarised(quirks=False) == [383 - unsent(first, cut.turn), 7]
