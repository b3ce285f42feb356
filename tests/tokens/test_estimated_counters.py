"""The estimates of real systems, on the cases that were read off those systems."""

from __future__ import annotations

from math import ceil

import pytest
from builders import assistant, result, system, tool_call, user
from hypothesis import given
from hypothesis import strategies as st

from ctxkit import tokens
from ctxkit.errors import BadArguments
from ctxkit.session import Attachment, Message, SizeOnly, Text, ToolCall

READ = ToolCall(id="c1", name="read", arguments={"path": "a b", "n": 1})
IMAGE = Attachment(data="aGVsbG8=")


def with_image(role: str, text: str) -> Message:
    return Message(role=role, parts=(Text(text), IMAGE))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (user("hello world"), 3),
        (with_image("user", "abcd"), 1),
        (assistant("ab", READ, thinking="cde"), 8),
        (with_image("tool", "abc"), 1201),
        (user("你好世界!"), 2),
        (user("😀😀"), 1),
        (user(""), 0),
    ],
)
def test_pi(message: Message, expected: int) -> None:
    assert tokens.get_counter("pi").message(message) == expected


@pytest.mark.parametrize(
    ("text", "pi", "openclaw"),
    [
        ("你好世界!", 2, 5),
        ("a · b", 2, 2),
        ("ㆠ" * 4, 1, 12),
        ("𠀀", 1, 4),
        ("plain", 2, 2),
        ("é" * 8, 2, 2),
    ],
)
def test_openclaw_weighs_wide_scripts(text: str, pi: int, openclaw: int) -> None:
    assert (tokens.get_counter("pi")(text), tokens.get_counter("openclaw")(text)) == (pi, openclaw)


def test_openclaw_weighs_images() -> None:
    assert tokens.get_counter("openclaw").message(with_image("user", "abcd")) == 2001


def test_ai_counts_bytes_as_go_writes_them() -> None:
    ai = tokens.get_counter("ai")
    assert ai("你好世界!") == ceil(13 / 4)
    go = ToolCall(
        id="c", name="sh", arguments={"z": "a<b && c>d", "a": 1}
    )  # {"a":1,"z":"a<b && c>d"}: four signs of six
    assert ai.message(assistant("", go)) == ceil((2 + 24 + 4 * 5) / 4)
    assert ai.message(with_image("user", "")) == 1200


def test_tyrum_rounds_once_and_takes_the_json_of_what_is_no_text() -> None:
    tyrum = tokens.get_counter("tyrum")
    assert [tyrum.message(user("abcde")), tyrum.total([user("abcde")] * 4)] == [2, 5]
    as_json = (
        '{"type":"tool-call","toolCallId":"c1","toolName":"read","input":{"path":"a b","n":1}}'
    )
    assert tyrum.total([system("abcd"), assistant("x", READ)]) == ceil((4 + 1 + len(as_json)) / 4)
    answer = '{"type":"tool-result","toolCallId":"c1","toolName":"read_file","output":{"type":"text","value":"a\\nb"}}'
    assert tyrum.message(result("a\nb", READ.id)) == ceil(len(answer) / 4)


def test_pulse_coder_counts_the_role() -> None:
    pulse = tokens.get_counter("pulse_coder")
    assert pulse.message(user("hello")) == 3  # ceil(9 / 4)
    assert pulse.message(Message(role="assistant", parts=(Text("hi"), Text("hi")))) == ceil(
        (9 + 2 * 27 + 3) / 4
    )
    turns = [user("u" * 400), assistant("a" * 400)] * 5
    assert pulse.total(turns) == 1017
    assert pulse.total(turns * 2) == 2033


def test_fuseraft_divides_as_integers() -> None:
    assert [tokens.get_counter("fuseraft")("abc"), tokens.get_counter("fuseraft")("abcdefg")] == [
        0,
        1,
    ]
    assert tokens.get_counter("fuseraft/dense")("abcdefgh") == 2


@given(st.lists(st.text(max_size=40), max_size=6))
def test_scopes_differ_by_their_rounding_only(texts: list[str]) -> None:
    message = Message(role="user", parts=tuple(map(Text, texts)))
    part, whole = tokens.estimated_counter(scope="part"), tokens.estimated_counter(scope="message")
    assert part.message(message) == sum(ceil(len(t) / 4) for t in texts)
    assert whole.message(message) == ceil(sum(map(len, texts)) / 4)
    assert tokens.estimated_counter(scope="total").total([message] * 3) == ceil(
        3 * sum(map(len, texts)) / 4
    )


@given(st.text())
def test_units(text: str) -> None:
    assert tokens.estimated_counter(1, unit="bytes")(text) == len(text.encode())
    assert tokens.estimated_counter(1, unit="utf16")(text) == len(text.encode("utf-16-le")) // 2
    assert tokens.estimated_counter(1)(text) == len(text)


def test_lone_surrogates_have_a_length() -> None:
    assert tokens.get_counter("ai")("\ud800") == tokens.get_counter("pi")("\ud800") == 1


def test_content_known_by_its_size() -> None:
    message = Message(role="user", parts=(SizeOnly("files", chars=9), SizeOnly("tools", tokens=50)))
    assert tokens.get_counter("chars/4").message(message) == 53
    assert tokens.get_counter("pulse_coder").message(message) > 50


def test_counters_by_name() -> None:
    for name in tokens.counter_names():
        assert isinstance(tokens.get_counter(name), tokens.TokenCounter)
        assert tokens.get_counter(name).source == (
            "derived" if "k_" in name or name == "exact" else "estimated"
        )
    assert tokens.get_counter("chars/3.5")("x" * 7) == 2
    assert (
        tokens.get_counter("pulse-coder") is tokens.get_counter("Pulse_Coder") is tokens.PULSE_CODER
    )
    assert tokens.get_counter("exact") is tokens.exact_counter() is tokens.get_counter("o200k_base")
    with pytest.raises(BadArguments, match="Did you mean 'cl100k_base'"):
        tokens.get_counter("cl100k")
    for wrong in ("chars/0", "", "chars/-4", "words/4"):
        with pytest.raises(BadArguments):
            tokens.get_counter(wrong)


def test_estimates_refuse_what_cannot_be() -> None:
    with pytest.raises(BadArguments, match="above 0"):
        tokens.estimated_counter(0)
    with pytest.raises(BadArguments, match="no such setting"):
        tokens.estimated_counter(4, colour="red")


def test_room() -> None:
    budget = tokens.ContextBudget(limit=200_000, reserve=20_000, counter=tokens.PI)
    assert budget.prompt_limit == 180_000
    assert tokens.ContextBudget(8_000, 16_384, tokens.PI).prompt_limit == 0
    for limit, reserve in ((0, 0), (-1, 0), (10, -1)):
        with pytest.raises(BadArguments):
            tokens.ContextBudget(limit, reserve, tokens.PI)
    with pytest.raises(AttributeError):
        budget.limit = 1


def test_a_tool_name_may_go_uncounted() -> None:
    call = assistant("", tool_call("read_file", path="x"))
    assert tokens.estimated_counter(1, tool_name=False).message(call) == tokens.estimated_counter(
        1
    ).message(call) - len("read_file")


def test_pis_own_sums_on_its_own_session(real) -> None:
    from ctxkit.formats import reading

    session = reading.read(real / "pi" / "before-compaction.jsonl")
    bash = [
        m for m in session.messages if m.kind == "bash"
    ]  # three, of which Pi counts no more than command and output
    rest = [m for m in session.messages if m.kind != "bash"]
    assert (
        tokens.PI.total(rest) == 375_427 - 12_882
    )  # Pi 0.58.3's own sums, of all and of the three
    assert 0 <= tokens.PI.total(bash) - 12_882 <= 5 * len(bash)
