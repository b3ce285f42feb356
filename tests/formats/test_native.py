"""The native format: whatever a session holds comes back equal, and Pi's reader understands the file too."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import get_args

import pytest
from builders import assistant, result, session, step, summarised, system, tool_call, usage, user
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, structs
from msgspec.json import decode, encode

import ctxkit as ck
from ctxkit.errors import ReadError
from ctxkit.formats import Source, encode_session_lines, native, pi
from ctxkit.formats.untrusted_record_parsing import MOST_COUNT
from ctxkit.session import (
    Attachment,
    Edit,
    Fault,
    Message,
    Part,
    Session,
    SizeOnly,
    Text,
    Thinking,
    ToolCall,
    ToolSchema,
    Usage,
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
maybe = st.none() | words
counts = st.none() | st.integers(0, MOST_COUNT)
reals = st.none() | st.floats(0, 1e10)
plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
)
objects = st.dictionaries(
    words,
    plain | st.lists(plain, max_size=2) | st.dictionaries(words, plain, max_size=2),
    max_size=3,
)
parts = st.one_of(
    st.builds(Text, words),
    st.builds(Thinking, words, maybe, st.integers(0, 99)),
    st.builds(Attachment, words, words, maybe, st.sampled_from(["image", "audio", "document"])),
    st.builds(ToolCall, words, words, objects, maybe),
    st.builds(SizeOnly, words, counts, counts),
)
usages = st.none() | st.builds(Usage, counts, counts, counts, counts, counts, counts, reals)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool", "summary"]),
    id=words,
    parts=st.lists(parts, max_size=3).map(tuple),
    agent=maybe,
    turn=st.none() | st.integers(0, 9),
    time=reals,
    kind=words,
    tool=maybe,
    call_id=maybe,
    is_error=st.sampled_from([False, True, None]),
    error=maybe,
    visible=st.booleans(),
    pinned=st.booleans(),
    pending=st.booleans(),
    usage=usages,
    model=maybe,
    stop=maybe | st.sampled_from(["stop", "tool", "aborted"]),
    latency=reals,
    context_window=counts,
    details=objects,
)
edits = st.builds(
    Edit,
    kind=st.sampled_from(["dropped", "shortened", "replaced", "summarised"]),
    id=words,
    targets=st.lists(words, max_size=3).map(tuple),
    inserted=st.lists(messages, max_size=2).map(tuple),
    reason=words,
    trigger=maybe,
    method=maybe,
    agent=maybe,
    time=reals,
    tokens_before=counts,
    tokens_after=counts,
    source=st.sampled_from(["recorded", "derived", "estimated"]),
    usage=usages,
    model=maybe,
    details=objects,
)


@st.composite
def sessions(draw: st.DrawFn, depth: int = 2) -> Session:
    log = tuple(draw(st.lists(messages | edits, max_size=6)))
    tree = (
        tuple(draw(st.integers(-1, i - 1)) for i in range(len(log))) if draw(st.booleans()) else ()
    )
    fields = {
        f: draw(maybe) for f in ("product", "version", "cwd", "title", "model", "parent", "path_")
    }
    schemas = st.builds(ToolSchema, name=words, description=words, parameters=objects, chars=counts)
    return Session(
        id=draw(words),
        format=draw(words),
        agent=draw(words),
        log=log,
        parents=tree,
        leaf=draw(st.integers(-1, len(log) - 1)),
        started=draw(reals),
        context_window=draw(counts),
        tools=tuple(draw(st.lists(schemas, max_size=2))),
        children=tuple(draw(st.lists(sessions(depth - 1), max_size=1))) if depth else (),
        skipped=draw(st.dictionaries(words, st.integers(0, 9), max_size=2)),
        faults=tuple(draw(st.lists(st.builds(Fault, st.integers(0, 9), words), max_size=2))),
        details=draw(objects),
        **fields,
    )


def back(s: Session) -> Session:
    return native.read(Source("x.jsonl", b"".join(encode_session_lines(s))))[0]


@given(sessions())
def test_every_session_comes_back_equal(s: Session) -> None:
    assert back(s) == s


def a_session() -> Session:
    asked, answered = step("ls", "a.txt", path=".")
    first, reply = (
        user("do"),
        assistant("ok", tool_call("x"), usage=usage(1, 2, 3, 4), time=5.0, stop="tool"),
    )
    log = (system("Be good."), first, asked, answered, reply, result("y", reply))
    return session(
        *log,
        summarised([first, asked, answered], "So far.", tokens_before=9),
        user("on"),
        started=1.0,
    )


def test_pi_reads_the_conversation_and_its_compactions() -> None:
    s = a_session()
    (as_pi,) = pi.read(Source("x.jsonl", b"".join(encode_session_lines(s))))
    assert [m.text for m in as_pi.view()] == [m.text for m in s.view() if m.role != "system"]
    assert [c.message.usage.prompt_tokens for c in as_pi.calls if c.message.usage] == [6]
    assert [e.tokens_before for e in as_pi.edits] == [9]


def test_what_another_program_appends_is_read_too() -> None:
    s = a_session()
    data = b"".join(encode_session_lines(s))
    new = b'{"type": "message", "id": "new", "parentId": "ffffffff", "message": {"role": "user", "content": "more"}}\n'
    grown = native.read(Source("x.jsonl", data + new))[0]
    assert [m.text for m in grown.view()] == [*(m.text for m in s.view()), "more"]
    assert grown.log[:-1] == s.log


def test_a_torn_end_keeps_all_whole_entries() -> None:
    s = a_session()
    whole = list(encode_session_lines(s))
    torn = native.read(Source("x.jsonl", b"".join(whole[:-2]) + whole[-2][:20]))[0]
    assert torn.log == s.log[:-1]
    assert len(torn.faults) == 1


def test_a_branch_and_where_it_stands_come_back(tmp_path: Path) -> None:
    s = a_session().branch(2).append(user("another way")).branch(4)
    ck.write(s, tmp_path / "s.jsonl")
    assert ck.read(tmp_path / "s.jsonl") == s


def test_a_newer_file_is_refused_in_part_not_misread() -> None:
    data = b"".join(encode_session_lines(a_session())).replace(
        b'"format_version":1', b'"format_version":2'
    )
    assert (
        "this version of ctxkit or an older one"
        in native.read(Source("x.jsonl", data))[0].faults[0].why
    )


@pytest.mark.parametrize(
    ("leaf", "parents", "wanted"),
    [
        (0, [-1, -1, 1], (0, (-1, -1, 1))),
        (2, [-1, 0, 0], (2, (-1, 0, 0))),
        (3, [-1, 0, 3], (-1, ())),  # behind the last entry
        (-2, [-2, 0, 1], (-1, ())),  # before the root
        ("1", [0, 1], (-1, ())),  # of another kind; one parent is missing
        (None, None, (-1, ())),
    ],
)
def test_a_subagents_branch_that_cannot_be_is_the_plain_order(leaf, parents, wanted) -> None:
    child = session(user("a"), assistant("b"), user("c"))
    lines = [decode(line) for line in encode_session_lines(session(user("go"), children=(child,)))]
    (data,) = [each["data"] for each in lines if each.get("customType") == "ctxkit.child"]
    data["leaf"], data["parents"] = leaf, parents
    (read,) = read_lines(lines).children
    assert (read.leaf, read.parents) == wanted


def read_lines(lines: list) -> Session:
    (out,) = ck.formats.read_source(Source("s.jsonl", b"\n".join(map(encode, lines))))
    return out


def test_a_file_without_entries_is_an_error() -> None:
    with pytest.raises(ReadError):
        native.read(Source("x.jsonl", b"{}"))


def test_a_fact_of_another_kind_is_left_out_and_told(tmp_path):
    sample = Path(__file__).parent / "golden" / "native.jsonl"
    whole = ck.read(sample)
    told = (
        sample.read_text()
        .replace('"format":"pi"', '"format":{"a":1}')
        .replace('"agent":"main"', '"agent":7')
    )
    (tmp_path / "a.jsonl").write_text(told)
    read = ck.read(tmp_path / "a.jsonl")
    assert [f.why for f in read.faults] == [
        "its agent is of another kind", "its format is of another kind"]  # fmt: skip
    assert read.log == whole.log


@pytest.mark.parametrize("name", native._DETAIL_TYPES)
def test_details_of_another_kind_are_left_out(name, tmp_path):
    told = {name: 1.5, "own": 1.5}
    reply = assistant("b", usage=usage(), details=told)
    ck.write(session(user("a"), reply, id="s", details=told), tmp_path / "s.jsonl")
    read = ck.read(tmp_path / "s.jsonl")
    assert read.details == read.messages[-1].details == {"own": 1.5}
    assert [f.why for f in read.faults] == [f"its {name} is of another kind"] * 2
    ck.report(read)
    ck.frame(read, per="session")


@pytest.mark.parametrize("name", ["source_tokens", "summary_tokens", "written_tokens"])
def test_a_replay_whose_counts_of_a_summary_are_no_numbers_is_scored(name, tmp_path):
    replay = ck.replay(ck.read(ck.samples.path("billing")), ck.presets.pi())
    ck.write(replay, tmp_path / "replay.jsonl")
    text = (tmp_path / "replay.jsonl").read_text()
    damaged, n = re.subn(rf'"{name}": ?\d+', f'"{name}":"many"', text)
    assert n >= len(replay.edits) > 0
    (tmp_path / "replay.jsonl").write_text(damaged)
    read = ck.read(tmp_path / "replay.jsonl")
    assert ck.score(read)["calls_n"] == len(replay.calls)
    assert len(ck.frame(read, per="compaction")) == len(replay.edits)
    assert [f.why for f in read.faults] == [f"its {name} is of another kind"] * n
    assert all(f'"{name}":"many"' in damaged.split("\n")[f.line - 1] for f in read.faults)


NO_NUMBERS = [-1, 2**53, 2**63, 10**400]
"""What no log can mean by a count."""
NO_AMOUNTS = [-1.0, 1e300]
NO_TIMES = [-1e12, 1e12, 1e300]


def whole_entries() -> list[Message | Edit]:
    """A message and an edit in which every field has a value."""
    bill = Usage(1, 2, 3, 4, 5, 6, 0.5)
    parts_ = (Text("a"), SizeOnly("file", 7, 8), Thinking("b", hidden=9))
    reply = Message(role="assistant", id="m", parts=parts_, turn=1, time=2.0, usage=bill, latency=3.0,
                   context_window=9, model="x")  # fmt: skip
    new = Message(role="summary", id="n", parts=parts_, usage=bill)
    return [
        user("go", id="u"),
        reply,
        Edit(
            kind="summarised",
            id="e",
            targets=("u",),
            inserted=(new,),
            time=4.0,
            tokens_before=10,
            tokens_after=5,
            usage=bill,
        ),
    ]


def numbers_in(value: object, way: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Return the ways to all numbers of plain values."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return [w for k, v in pairs for w in numbers_in(v, (*way, k))]
    return [way] if type(value) in (int, float) else []


def entries_of(plain_entries: list) -> tuple[Message | Edit, ...]:
    return tuple(convert(e, Edit if "kind" in e else Message) for e in plain_entries)


ENTRIES = decode(encode(whole_entries()))
WAYS = numbers_in(ENTRIES)


def test_every_number_of_an_entry_is_tried() -> None:
    tried = set[tuple[type, str]]()
    for way in WAYS:
        holder = whole_entries()
        for key in way[:-1]:
            holder = holder[key] if isinstance(key, int) else getattr(holder, str(key))
        tried.add((type(holder), str(way[-1])))
    for kind in (Message, Edit, Usage, *get_args(Part)):
        for f in structs.fields(kind):
            if f.type in (int, int | None, float, float | None):
                assert (kind, f.name) in tried


@pytest.mark.parametrize("way", WAYS, ids=lambda way: ".".join(map(str, way)))
def test_a_number_that_no_log_can_mean_is_missing_and_its_message_is_not(way) -> None:
    bad = NO_TIMES if way[-1] == "time" else NO_NUMBERS
    if way[-1] in ("cost_usd", "latency"):
        bad = NO_AMOUNTS
    for value in bad:
        raw = deepcopy(ENTRIES)
        inner = raw
        for key in way[:-1]:
            inner = inner[key]
        whole = inner.pop(way[-1])
        expected = entries_of(raw)
        inner[way[-1]] = value
        log = entries_of(raw)
        read = back(session(*log))
        assert whole is not None
        assert read.log == expected
        ck.report(read)
        ck.frame(read, per="call")


@pytest.mark.parametrize("read", [2**63, 10**25])
def test_what_the_cache_cannot_have_given_is_neither_drawn_nor_summed(read: int) -> None:
    log = [user("go")]
    for n in range(1, 13):
        bill = usage(100, read if n % 4 == 0 else 1_000 * n, 50)
        log += step("ls", "a.txt"), assistant("ok", usage=bill, model="claude-sonnet-4-5", time=n)
    s = back(session(*log))
    assert [c.message.usage.cache_read_tokens for c in s.calls[1::2]][3::4] == [None] * 3
    assert ck.plots.cache(s).to_html()
    assert ck.score(s)["prompt_tokens"] < 10**6
    assert ck.score(ck.replay(s, "codex"))["prompt_tokens"] < 10**6
