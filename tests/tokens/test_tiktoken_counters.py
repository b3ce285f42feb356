"""Exact counting: tiktoken's counts, offline, for any text, once a text."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import tiktoken
from builders import assistant, result, tool_call, user
from hypothesis import example, given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit import tokens
from ctxkit._internal import safe_files
from ctxkit.errors import BadArguments, StoreError
from ctxkit.session import Attachment, Message, SizeOnly, Thinking
from ctxkit.tokens import exact_counters

NAMES = ["o200k_base", "cl100k_base", "p50k_base"]
ODD = st.text(
    st.sampled_from("aB0 \n\t\r'/.s-é你\u0301\u3000\x1c\x85😀=<|>\ud83d\ude00") | st.characters(),
    max_size=60,
)
WORDS = st.lists(
    st.sampled_from(
        ["don't", "I'LL", " x", "12345", "\n\n", "  ", "}\n", "Ab", "é", "'", "/", "\r\n"]
    ),
    max_size=30,
)


@functools.cache
def published(name: str) -> tiktoken.Encoding:
    return tiktoken.Encoding(**exact_counters.get_encoding_definition(name))


def reference(name: str, text: str) -> int:
    return len(published(name).encode_ordinary(text))


@pytest.mark.parametrize("name", NAMES)
@given(text=ODD | WORDS.map("".join))
@example(text="I'\u017fo don'\u017f x'\u212a")  # a long s and a Kelvin sign are an s and a k
def test_counts_as_tiktoken_does(name: str, text: str) -> None:
    assert tokens.exact_counter(name)(text) == reference(name, text)


@pytest.mark.parametrize("name", NAMES)
def test_the_pattern_is_one_automaton_and_a_look_ahead(name: str) -> None:
    pattern = exact_counters.load_encoding(name)._pat_str
    assert pattern != published(name)._pat_str
    easy, rest = pattern.split(r")|\s+(?!\S)|")
    assert not re.search(r"[?*+]\+|,\d\}\+|\(\?[=!<>]", easy + rest)


def test_texts_of_real_logs_count_as_tiktoken_counts_them(real) -> None:
    for kind in ("claude-code", "codex", "opencode"):
        found = ck.read_all(real / kind, progress=False)
        texts = {m.text for s in found for m in s.messages}
        assert [tokens.exact_counter().count_uncached(t) for t in texts] == [
            reference("o200k_base", t) for t in texts
        ]


@pytest.mark.parametrize("name", NAMES)
@given(text=ODD | WORDS.map("".join))
def test_splitting_by_ourselves_counts_the_same(name: str, text: str) -> None:
    assert exact_counters.count_in_pieces(
        exact_counters.load_encoding(name), exact_counters.replace_surrogates(text)
    ) == reference(name, text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    ["a" * 60_000, "=" * 70_001 + "\n", "x\n" + " " * 60_007 + "y", "-" * 55_555, " \t" * 40_000],
)
def test_runs_are_counted_by_their_period(name: str, text: str) -> None:
    assert exact_counters.has_long_run(text) == (not text.startswith(" \t") or text.isspace())
    assert tokens.exact_counter(name).count_uncached(text) == reference(name, text)


@pytest.mark.parametrize(
    "text", [" " * 1_000_000, "def f():\n" + " \t" * 500_000 + "x", "\n" * 1_000_000, "😀" * 30_000]
)
def test_no_text_stops_the_counter(text: str) -> None:
    half = tokens.exact_counter().count_uncached(text[: len(text) // 2])
    assert half < tokens.exact_counter().count_uncached(text) <= 2 * half + 8


def test_known_counts_of_a_million() -> None:
    assert (
        tokens.exact_counter().count_uncached(" " * 1_000_000) == 7_813
    )  # 128 spaces a token, as toktok-rs counts them
    assert tokens.exact_counter().count_uncached("a" * 1_000_000) == 125_000


def test_a_panic_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(text: str) -> int:
        raise PanicException

    counter = exact_counters.TiktokenCounter("o200k_base")
    counter._count = panic
    assert counter("a b c") == 3
    counter._count = lambda text: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        counter("d")


def test_special_tokens_and_surrogates_are_text() -> None:
    count = tokens.exact_counter()
    assert count("<|endoftext|>") == 7
    assert count("a\ud800b") == count("a\ufffdb")
    assert count("\ud83d\ude00") == count("😀")


def test_a_text_is_tokenised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counter, seen = exact_counters.TiktokenCounter("o200k_base"), []
    monkeypatch.setattr(counter, "count_uncached", lambda text: seen.append(text) or 7)
    text = "some text of which there are two"
    assert counter(text) == counter("".join(list(text))) == 7
    assert seen == [text]


def test_the_memo_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_counters, "MEMO_BYTES", 20_000)
    counter = exact_counters.TiktokenCounter("o200k_base")
    for i in range(200):
        counter(f"{i} " + "x " * 500)
    assert sum(map(sys.getsizeof, counter)) <= 20_000
    assert counter("x " * 50_000) == 50_001  # too large to be kept, counted all the same
    assert "x " * 50_000 not in counter


def test_an_empty_counter_is_still_a_counter() -> None:
    counter = exact_counters.TiktokenCounter("cl100k_base")
    assert counter
    assert counter != exact_counters.TiktokenCounter("cl100k_base")
    assert {counter: 1}[counter] == 1
    assert counter("") == 0


def test_counters_travel_to_other_processes() -> None:
    for counter in (tokens.exact_counter("cl100k_base"), tokens.anthropic_counter(), tokens.PI):
        assert pickle.loads(pickle.dumps(counter)) == counter == copy.deepcopy(counter)


def test_threads_share_a_counter() -> None:
    counter = exact_counters.TiktokenCounter("cl100k_base")
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(counter, ["one two"] * 100)) == [2] * 100


def test_weight_of_a_message() -> None:
    count = tokens.exact_counter()
    asked = assistant("Look.", tool_call("read", path="a b"), thinking="hm")
    assert count.message(asked) == count("Look.") + count("hm") + count("read") + count(
        '{"path":"a b"}'
    )
    assert count.message(result("abc")) == count("abc")
    parts = (
        Attachment(),
        SizeOnly("tools", tokens=40),
        SizeOnly("text", chars=9),
        Thinking("", hidden=400),
        Thinking("hm", hidden=400),
    )
    assert count.message(Message(role="user", parts=parts)) == 1200 + 40 + 3 + 100 + count("hm")
    assert count.total([asked, user("abc")]) == count.message(asked) + count("abc")


def test_arguments_that_are_no_json_are_counted_too() -> None:
    from ctxkit.session import ToolCall

    count = tokens.exact_counter()
    call = ToolCall(id="c", name="run", raw='{"broken": ')
    assert count.message(Message(role="assistant", parts=(call,))) == count("run") + count(
        '{"broken": '
    )
    odd = ToolCall(id="c", name="run", arguments={"x": "\ud800", "y": 2**200})
    assert count.message(Message(role="assistant", parts=(odd,))) > 25


def test_names_of_models_and_encodings() -> None:
    assert (
        tokens.encoding_for_model("gpt-4o-mini")
        == tokens.encoding_for_model("openai/gpt-5")
        == "o200k_base"
    )
    assert tokens.encoding_for_model("gpt-4") == "cl100k_base"
    assert tokens.encoding_for_model("claude-opus-4-5") is None
    assert tokens.exact_counter("o200k_harmony")("<|start|>assistant") == tokens.exact_counter()(
        "<|start|>assistant"
    )
    with pytest.raises(BadArguments, match="Did you mean 'o200k_base'"):
        tokens.exact_counter("o200k")


def test_anthropics_tokenizer_says_what_it_is() -> None:
    counter = tokens.anthropic_counter()
    assert counter("hello world") == 2
    assert "Claude 2" in repr(counter)
    assert counter.source == "estimated"
    assert counter("a\ud800b") > 0


# -- where vocabularies come from ------------------------------------------------------------------------------------

SCRIPT = """
import os, sys
from ctxkit import tokens
before = dict(os.environ)
print(tokens.exact_counter("p50k_base")("hello world"), "litellm" in sys.modules, dict(os.environ) == before)
"""


def fresh(script: str, **env: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return run.stdout.strip() + run.stderr.strip()[-300:]


def test_the_vocabulary_comes_from_litellms_wheel_without_running_it(tmp_path) -> None:
    assert fresh(SCRIPT, CTXKIT_CACHE_DIR=str(tmp_path / "new")) == "2 False True"
    (kept,) = [p for p in (tmp_path / "new").rglob("*") if p.is_file()]
    assert kept.name == "p50k_base.tiktoken"


@pytest.mark.parametrize("name", exact_counters.BUNDLED_VOCABULARIES)
def test_two_vocabularies_are_carried(name, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTXKIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(exact_counters, "find_litellm_tokenizers", lambda: None)
    monkeypatch.setattr(exact_counters, "_loaded", {})
    monkeypatch.setattr(exact_counters.tempfile, "gettempdir", lambda: str(tmp_path))
    for variable in ("TIKTOKEN_CACHE_DIR", "CUSTOM_TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    assert exact_counters.TiktokenCounter(name)("hello world") == 2


def test_a_damaged_cache_is_passed_over_and_a_users_cache_left_alone(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, ours = tmp_path / "users", tmp_path / "ours" / "vocabularies"
    users.mkdir(), ours.mkdir(parents=True)
    key = "ec7223a39ce59f226a68acc30dc1af2788490e15"  # the hash of p50k_base's address
    (users / key).write_text("damaged")
    (ours / "p50k_base.tiktoken").write_text("torn")
    assert (
        fresh(SCRIPT, CTXKIT_CACHE_DIR=str(tmp_path / "ours"), TIKTOKEN_CACHE_DIR=str(users))
        == "2 False True"
    )
    assert (users / key).read_text() == "damaged"
    assert (ours / "p50k_base.tiktoken").stat().st_size > 500_000


def test_an_unwritable_cache_costs_nothing(tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert fresh(SCRIPT, CTXKIT_CACHE_DIR=str(tmp_path / "file")) == "2 False True"


def test_without_a_vocabulary_the_error_says_what_to_do(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTXKIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(exact_counters, "find_litellm_tokenizers", lambda: None)
    monkeypatch.setattr(exact_counters, "DATA_DIR", tmp_path)
    monkeypatch.setattr(exact_counters, "_loaded", {})
    monkeypatch.setattr(exact_counters.tempfile, "gettempdir", lambda: str(tmp_path))
    for name in ("TIKTOKEN_CACHE_DIR", "CUSTOM_TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StoreError, match="allow_download=True"):
        exact_counters.TiktokenCounter("o200k_base")("text")
    assert tokens.default_counter().name == "chars/4"
    with pytest.raises(StoreError, match=r"install jupyter-ctxkit\[live\]"):
        exact_counters.find_anthropic_tokenizer()


def test_the_cache_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.delenv("CTXKIT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(safe_files.sys, "platform", "linux")
    assert tokens.get_ctxkit_cache_folder() == tmp_path / "ctxkit"
    assert not tokens.get_ctxkit_cache_folder().exists()
    monkeypatch.setattr(safe_files.sys, "platform", "darwin")
    assert tokens.get_ctxkit_cache_folder().parts[-3:] == ("Library", "Caches", "ctxkit")


# -- a text that grows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@given(parts=st.lists(ODD | WORDS.map("".join), max_size=12))
def test_a_growing_text_is_exact_at_every_append(name: str, parts: list[str]) -> None:
    parts = [exact_counters.replace_surrogates(p) for p in parts]
    grows = tokens.IncrementalCounter(tokens.exact_counter(name))
    for i, part in enumerate(parts):
        assert grows.append(part) == reference(name, "".join(parts[: i + 1]))


@pytest.mark.parametrize("name", NAMES)
def test_a_growing_text_counts_only_what_is_new(name: str) -> None:
    counter, seen = exact_counters.TiktokenCounter(name), []
    whole = counter.count_uncached
    counter.count_uncached = lambda text: seen.append(len(text)) or whole(text)  # type: ignore[method-assign]
    line = '{"path": "src/a.py", "ok": true, "n": 17}, '  # one line of JSON, no newline to cut at
    grows = tokens.IncrementalCounter(counter, line)
    for _ in range(99):
        grows.append(line)
    assert grows.tokens == reference(name, line * 100)
    assert sum(seen) < 3 * len(line) * 100


@pytest.mark.parametrize("name", ["anthropic", "chars/4", "ai"])
def test_other_growing_texts_are_counted_whole(name: str) -> None:
    grows = tokens.IncrementalCounter(tokens.get_counter(name))
    assert [grows.append(p) for p in ("hel", "lo wör", "ld")][-1] == tokens.get_counter(name)(
        "hello wörld"
    )


PIECES = st.lists(
    st.sampled_from(
        ["a", "B", "1", "'s", "-", "- ", " ", "  ", "\n", "\n\n", "\r\n", "\r", "/", "//", ".", "})",
         "\t", "\x0b", "\x1c", "\x85", "\u2028", "é", "中", "\u0301", "ǅ", "\ud83d", "\ude00", "<|im_end|>"]
    ),
    max_size=24,
).map("".join)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@given(text=PIECES)
@example(text="a\n- b \n- \n- c\n\n\n- /d\n- e")
@example(text="*\n/home")
@example(text="x\n  y\n")
def test_a_text_counts_as_its_lines_do(name: str, text: str) -> None:
    assert tokens.exact_counter(name).count_by_lines(text) == reference(name, text)  # type: ignore[attr-defined]


def test_of_a_list_only_new_lines_are_counted() -> None:
    counter, seen = exact_counters.TiktokenCounter("o200k_base"), []
    whole = counter.count_uncached
    counter.count_uncached = lambda text: seen.append(text) or whole(text)  # type: ignore[method-assign]
    items = [f"- read(file{n}.py)" for n in range(9)]
    counter.count_by_lines("\n".join(["A list:", *items]))
    seen.clear()
    counter.count_by_lines("\n".join(["A list:", *items[3:], "- write(b.py)"]))
    assert seen == ["- read(file8.py)\n", "- write(b.py)"]
