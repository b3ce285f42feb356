"""The line after a magic becomes a typed value, or one sentence of what is wrong with it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.errors import BadArguments
from ctxkit.magics.line_parser import (
    format_usage,
    option_field,
    parse_line,
    positional_field,
    remaining_text_field,
    split_tokens,
    strip_comment,
    strip_semicolon,
)


@dataclass(frozen=True)
class Line:
    file: str = positional_field("a file")
    again: str = positional_field("another", default="none")
    keep: int = option_field("turns to keep", default=3)
    share: float | None = option_field("a share")
    dry_run: bool = option_field("show it only", default=False)


@dataclass(frozen=True)
class Focus:
    text: str = remaining_text_field("what matters")
    keep: int | None = option_field("turns to keep")


@dataclass(frozen=True)
class Wish:
    text: str = remaining_text_field("what matters")
    keep: int | None = option_field("turns to keep")
    name: str | None = option_field("a name")
    dry_run: bool = option_field("show it only", default=False)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a", Line("a")),
        ("a b --keep 7", Line("a", "b", keep=7)),
        ("--dry-run a --share=0.5", Line("a", dry_run=True, share=0.5)),
        ("'two words' --keep -1", Line("two words", keep=-1)),
        ('"a;b" ', Line("a;b")),
        (r"C:\logs\x.jsonl", Line(r"C:\logs\x.jsonl")),
        ("don't", Line("don't")),
        ("''", Line("")),
    ],
)
def test_a_line_becomes_a_value(line: str, value: Line):
    assert parse_line(Line, line, "%magic") == value


@pytest.mark.parametrize(
    "focus",
    ["keep the paths; and 'quotes'", "use $HOME and {braces}", "  x  ", "a - b", '"--keep 9"'],
)
def test_the_rest_is_taken_as_it_stands(focus: str):
    assert parse_line(Focus, f"--keep 2 {focus}", "%magic") == Focus(focus.lstrip(), keep=2)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("keep the ids --dry-run", Wish("keep the ids", dry_run=True)),
        ("don't lose the ids --dry-run of the user's", Wish("don't lose the ids of the user's", dry_run=True)),
        ("keep 'em --dry-run and the others' ids", Wish("keep 'em and the others' ids", dry_run=True)),
        ("a --keep 9 b", Wish("a b", keep=9)),
        ("a --keep=9 --dry-run", Wish("a", keep=9, dry_run=True)),
        ("a --name 'x y' b --name=\"u v\" c", Wish("a b c", name="u v")),
        ("the flag \"--dry-run\" in 'quotes'", Wish("the flag \"--dry-run\" in 'quotes'")),
        ("the flag '--dry-run'", Wish("the flag '--dry-run'")),
        ('"what --dry-run does"', Wish('"what --dry-run does"')),
        ("--dry-run all that -- looks --like this", Wish("all that looks --like this", dry_run=True)),
        ("--keep 2 a\n--dry-run", Wish("a", keep=2, dry_run=True)),
    ],
)  # fmt: skip
def test_an_option_in_the_text_counts_unless_it_is_in_quotes(line: str, value: Wish):
    assert parse_line(Wish, line, "%magic") == value


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("keep the ids --dryrun", "no option --dryrun. Did you mean '--dry-run'"),
        ("keep the ids --keep", "--keep` needs a value"),
        ("keep the ids --keep much", "must be a number"),
        ("keep the ids --dry-run=no", "takes no value"),
        ("keep the ids --dry-run;", "no option --dry-run;"),
    ],
)
def test_what_looks_like_an_option_in_the_text_counts_or_is_refused(line: str, said: str):
    with pytest.raises(BadArguments, match=said):
        parse_line(Wish, line, "%magic")


@given(
    st.lists(st.sampled_from(["keep", "don't", "'em", "others'", "-", "it"]), max_size=6),
    st.integers(0, 6),
)
def test_no_place_hides_an_option(words: list[str], at: int):
    said = [*words[:at], "--dry-run", *words[at:]]
    assert parse_line(Wish, " ".join(said), "%magic") == Wish(" ".join(words), dry_run=True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "needs FILE: a file"),
        ("a b c", "'c' is one too many"),
        ("a --kep 3", "Did you mean '--keep'"),
        ("a --keep", "needs a value"),
        ("a --keep=x", "keep must be a number, not 'x'"),
        ("a --share much", "share must be a number"),
    ],
)
def test_a_mistake_is_one_sentence(line: str, said: str):
    with pytest.raises(BadArguments, match=said):
        parse_line(Line, line, "%magic")


def test_usage_names_every_word_and_option():
    text = format_usage(Line, "%magic")
    assert text.startswith("%magic [--keep KEEP] [--share SHARE] [--dry-run] FILE [AGAIN]\n")
    assert len(text.splitlines()) == 6


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\"'", exclude_categories=["Cs"]), min_size=1),
        min_size=1,
    )
)
def test_quoted_words_come_back_whole(words: list[str]):
    line = " ".join(f'"{w}"' for w in words)
    assert [t.text for t in split_tokens(line)] == words


@given(st.text())
def test_any_line_is_parsed_or_refused_in_one_sentence(line: str):
    with suppress(BadArguments):
        assert isinstance(parse_line(Line, strip_semicolon(line), "%magic"), Line)


def test_a_comment_ends_a_line_but_not_a_word():
    assert strip_comment("use a.jsonl   # makes it active") == "use a.jsonl"
    assert strip_comment("# nothing") == ""
    assert strip_comment('use "#1.jsonl" --name a#b') == 'use "#1.jsonl" --name a#b'
