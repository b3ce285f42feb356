"""Policies by name and in one line."""

import pytest

from ctxkit.errors import BadArguments, UnknownName
from ctxkit.policies import Chain, Clear, ResultShortening, Window, registry


def test_a_line_is_a_chain_of_policies():
    assert registry.parse("clear:keep_last=3 | window:keep_tokens=60_000") == Chain(
        (Clear(keep_last=3), Window(keep_tokens=60000))
    )
    assert registry.parse("clear") == Clear()


def test_lists_tables_and_quoted_texts():
    assert registry.parse('clear:deny=bash+read*,placeholder="[a, | b]"') == Clear(
        deny=("bash", "read*"), placeholder="[a, | b]"
    )
    assert registry.parse("shorten:max_chars=9,overrides=grep:20000+bash:5") == ResultShortening(
        max_chars=9, overrides={"grep": 20000, "bash": 5}
    )


@pytest.mark.parametrize("name", registry.names())
def test_every_name_makes_a_policy(name):
    assert callable(registry.create_policy(name))


def test_the_nearest_right_word_is_named():
    with pytest.raises(UnknownName, match="'window'"):
        registry.parse("windw:keep_tokens=3")
    with pytest.raises(BadArguments, match="'keep_last'"):
        registry.parse("clear:keep_lats=3")


@pytest.mark.parametrize(
    "words",
    [
        "",
        "|",
        "clear |",
        "| clear",
        "clear || window",
        "clear:keep_last",
        "clear:keep_last=-1",
        "clear:keep_last=many",
    ],
)
def test_lines_that_say_nothing_are_refused(words):
    with pytest.raises(BadArguments):
        registry.parse(words)


def test_policies_of_other_packages_are_found_by_name(tmp_path, monkeypatch):
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ctxkit.policies]\nhalve = theirs_policy:halve\n")
    (tmp_path / "theirs_policy.py").write_text(
        "def halve():\n    return lambda history, room: history.drop(len(history) // 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert "halve" in registry.names()
    assert len(registry.parse("clear | halve").parts) == 2
    with pytest.raises(UnknownName, match="'halve'"):
        registry.parse("halv")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("words", "words"),
        ("True", True),
        ("none", None),
        ("1_000", 1000),
        ("2.5", 2.5),
        ('"7"', "7"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_the_value_of_a_setting_without_a_type_is_what_its_text_says(text, value):
    settings = registry.parse_settings(f"a={text}", "it", {"a": ("object", None)})
    assert settings == {"a": value}
    assert type(settings["a"]) is type(value)
