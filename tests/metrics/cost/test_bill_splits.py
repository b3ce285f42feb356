"""Each split of one bill, part by part, from the prices of its tokens: a read 0.30, a write 3.75, output 15 dollars a million."""

from __future__ import annotations

import re

import pytest
from builders import assistant, result, session, system, tool_call, user

import ctxkit as ck
from ctxkit.metrics.cost.bill_splits import (
    BillPart,
    describe_resend_cause,
    render_bill_treemap,
)
from ctxkit.session import Usage
from ctxkit.tokens import measure_sizes

MODEL = "claude-sonnet-4-5"
READ, WRITE, OUTPUT = 0.30, 3.75, 15.0
"""Millionths of a dollar a token."""


def bill(read: int, write: int, output: int) -> Usage:
    return Usage(cache_read_tokens=read, cache_write_tokens=write, output_tokens=output)


def make_session():
    """Return three calls of one turn, each of which reads the last prompt, and one that finds no cache."""
    read = tool_call("read_file", id="c1", path="src/a.py")
    log = tool_call("mcp__git__log", id="c2")
    return session(
        system("s " * 200, id="s"),
        user("Fix it.", id="u1", time=0.0),
        assistant("Look.", read, id="a1", usage=bill(0, 1_000, 100), model=MODEL, time=10.0),
        result("x " * 400, read, id="r1"),
        assistant("Log.", log, id="a2", usage=bill(1_000, 1_000, 50), model=MODEL, time=20.0),
        result("y " * 100, log, id="r2"),
        assistant("Done.", id="a3", usage=bill(2_000, 500, 200), model=MODEL, time=30.0),
        user("Next?", id="u2", time=40.0),
        assistant("No.", id="a4", usage=bill(0, 2_800, 10), model=MODEL, time=4_000.0),
        model=MODEL, format="claude-code", title="T",
    )  # fmt: skip


@pytest.fixture(scope="module")
def spent():
    return ck.spend(make_session())


TURNS = {
    "0: Fix it.": ((1_000 + 2_000) * READ + (1_000 + 1_000 + 500) * WRITE + 350 * OUTPUT, 3),
    "1: Next?": (2_800 * WRITE + 10 * OUTPUT, 1),
}
TOTAL = sum(usd for usd, _ in TURNS.values())
SPLITS = {
    "turn": TURNS,
    "cache": {
        "first sent, nothing cached": (1_000 * WRITE, 1),
        "read from the cache": (3_000 * READ, 4),
        "sent again, no cause found": (2_500 * WRITE, 1),  # all of the prompt before
        "new in the prompt": ((1_000 + 500 + 300) * WRITE, 4),
        "output": (360 * OUTPUT, 4),
    },
    "agent": {"main": (TOTAL, 4)},
    "model": {MODEL: (TOTAL, 4)},
    "subagent": {"T itself": (TOTAL, 4)},
}


@pytest.mark.parametrize("way", SPLITS)
def test_a_split_has_the_dollars_and_calls_of_each_part(spent, way):
    found = {p.name: (pytest.approx(p.usd * 1e6), p.n) for p in spent.by(way)}
    assert found == SPLITS[way]
    assert list(found) == sorted(found, key=lambda name: -SPLITS[way][name][0])


def test_a_message_is_written_once_read_twice_and_written_again(spent):
    sizes = measure_sizes(spent.session)
    of = {m.id: sizes.of(m) for m in spent.session.messages}
    tools = {p.name: p.usd * 1e6 for p in spent.by("tool")}
    sections = {p.name: p.usd * 1e6 for p in spent.by("section")}
    always = 2 * WRITE + 2 * READ  # in the first prompt, and in all others
    assert tools["system message"] == pytest.approx(of["s"] * always)
    assert sections["preamble"] == pytest.approx(of["s"] * always)
    not_in_log = "system prompt and tools (not in the log)"
    assert tools[not_in_log] == pytest.approx(sizes.fixed * always)
    assert sections[not_in_log] == pytest.approx(sizes.fixed * always)
    assert tools["user"] == pytest.approx(of["u1"] * always + of["u2"] * WRITE)
    results = {"r1": WRITE + READ + WRITE, "r2": WRITE + WRITE}
    calls = {"read_file": "r1", "mcp__git__log": "r2"}
    for tool, name in calls.items():
        assert tools[tool] > of[name] * results[name]  # and the call itself
    sent_n = {p.name: p.n for p in spent.by("section")}
    assert sent_n == {"preamble": 4, not_in_log: 0, "all else": 0}
    assert sum(tools.values()) == pytest.approx(TOTAL)
    assert sum(sections.values()) == pytest.approx(TOTAL)


def test_servers_and_files_are_those_of_the_tools(spent):
    tools = {p.name: p.usd for p in spent.by("tool")}
    servers = {p.name: p.usd for p in spent.by("server")}
    assert servers["git"] == pytest.approx(tools["mcp__git__log"])
    assert servers["no MCP server"] == pytest.approx(TOTAL / 1e6 - tools["mcp__git__log"])
    files = {p.name: (p.usd, p.n) for p in spent.by("file")}
    assert files["src/a.py"][1] == 2
    assert files["src/a.py"][0] >= tools["read_file"]
    assert sum(usd for usd, _ in files.values()) == pytest.approx(TOTAL / 1e6)


def test_the_answer_names_the_largest_part_that_could_have_been_saved(spent):
    assert spent.answer == (
        "$0.03 for 4 calls: 36 % of it ($0.0094) for sending again what the cache had held, after"
        " 1 miss without a cause."
    )
    assert spent.sentences[0].startswith("$0.03 in 4 calls (derived): 21 % for output; most for")
    above = 2_500 * (WRITE - READ) / 1e6
    assert spent.sentences[1].endswith(
        f"after 1 miss without a cause: ${above:.4f} above reading it."
    )
    calm = ck.spend(session(*make_session().log[:7], model=MODEL, format="claude-code"))
    assert calm.answer.endswith("for 3 calls; nothing of it was sent or fetched twice.")


def test_a_call_is_repeated_with_equal_arguments_in_any_order_and_files_are_named_from_the_folder():
    """Each call adds 1,000 tokens: its reply of 100 and a result of 900."""
    calls = [
        tool_call("read_file", id="c1", path="/p/src/a.py", line=1),
        tool_call("read_file", id="c2", line=1, path="/p/src/a.py"),
        tool_call("edit_file", id="c3", path="/p/src/a.py", line=1),
        tool_call("read_file", id="c4", path="/q/b.py"),
        tool_call("read_file", id="c5", path="/p/src/a.py", line=2),
    ]
    log = [user("Go.")]
    for n, call in enumerate(calls):
        usage = bill(1_000 * n, 1_000, 100)
        log += [assistant("", call, usage=usage, model=MODEL), result("x " * 100, call)]
    log.append(assistant("end", usage=bill(5_000, 1_000, 100), model=MODEL))
    spent = ck.spend(session(*log, model=MODEL, cwd="/p/"))
    (repeat,) = spent.repeated_results
    assert (repeat.name, repeat.times, repeat.tokens) == ("read_file src/a.py", 2, 900)
    assert repeat.usd * 1e6 == pytest.approx(900 * (WRITE + 3 * READ))  # once new, then read
    messages_n = {p.name: p.n for p in spent.by("file")}
    assert messages_n == {"src/a.py": 2 * 4, "/q/b.py": 2, "no file": 0}
    results_n = {p.name: p.n for p in spent.by("tool")}
    assert (results_n["read_file"], results_n["edit_file"]) == (4, 1)


def test_a_map_shows_at_most_24_parts_above_four_thousandths_with_names_that_fit():
    def read_names(*parts: tuple[str, float]) -> list[tuple[str, str]]:
        svg = render_bill_treemap([BillPart(name, usd, 1) for name, usd in parts], 1.0)
        return re.findall(r"<title>(.*?)</title>.*?>([^<]*)</text>", svg)

    small = ("small", 0.0041)
    assert read_names(("p" * 200, 1.0), small, ("tiny", 0.004)) == [
        ("p" * 199 + "…", "p" * 100 + "…"),  # 7 pixels a character
        ("small: $0.0041, 0 %", ""),
    ]
    assert len(read_names(*((f"part {n}", 1 / 30) for n in range(30)))) == 24
    assert read_names() == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("compaction", "sent again after a compaction"),
        ("resumed", "sent again after the session was resumed"),
        ("cold_start", "first sent, nothing cached"),
        ("unexplained", "sent again, no cause found"),
        ("tools_loaded", "sent again: tools loaded"),
    ],
)
def test_what_was_sent_again_is_named_by_its_cause(kind, words):
    assert describe_resend_cause(kind) == words
