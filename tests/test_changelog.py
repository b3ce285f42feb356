"""The changelog is one page and true; the table of renames leads to names that are there."""

from __future__ import annotations

import re
from importlib import import_module
from itertools import takewhile
from pathlib import Path

import pytest
from cli.command_runner import list_commands

import ctxkit as ck
from ctxkit.formats import WRITE_FORMATS, format_names
from ctxkit.presets import SYSTEM_CONFIG_FILES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
SOURCE = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "ctxkit").rglob("*.py"))
RENAMES = (ROOT / "docs" / "renames.md").read_text(encoding="utf-8")
WORDS = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
]


def resolve(path: str) -> object:
    """Return what a dotted path below `ctxkit` means; a module is imported where it is named."""
    value: object = import_module("ctxkit")
    for part in path.split("."):
        if not hasattr(value, part):
            import_module(f"{value.__name__}.{part}")
        value = getattr(value, part)
    return value


def test_the_page_is_one_page_of_one_version():
    assert len(PAGE.splitlines()) <= 60
    assert re.findall(r"^## (\[\S+\])", PAGE, re.MULTILINE) == [f"[{ck.__version__}]"]


def test_its_numbers_are_those_of_the_package():
    told = " ".join(PAGE.split())
    names = [p.name for p in (ROOT / "notebooks").glob("*.ipynb")]
    course = [n for n in names if n[0].isdigit()]
    appendices = [n for n in names if n.startswith("a")]
    assert len(course) + len(appendices) == len(names)
    assert f"of {len(format_names())} formats" in told
    assert f"in {WORDS[len(WRITE_FORMATS) - 1]} other formats" in told
    assert f"{len(ck.presets.names())} presets" in told
    assert f"config files of {WORDS[len(SYSTEM_CONFIG_FILES)]} of them" in told
    assert f"{WORDS[len(ck.plots.__all__)].capitalize()} charts" in told
    assert f"{WORDS[len(course)]} notebooks and {WORDS[len(appendices)]} appendices" in told
    commands = told.partition("`jupyter ctxkit`:")[2].partition("(")[0]
    assert re.findall(r"`(\w+)`", commands) == [*list_commands()]


@pytest.mark.parametrize("name", sorted({*re.findall(r"`ck\.([\w.]+)`", PAGE)}))
def test_each_function_that_it_names_is_there(name):
    assert resolve(name) is not None


@pytest.mark.parametrize(
    ("old", "new"), re.findall(r"^\| `([^`|]+)` \| `([^`|]+)` \|", RENAMES, re.MULTILINE)
)
def test_each_new_name_of_the_table_is_there(old, new):
    assert resolve(new) is not None
    assert old != new or "." not in old


@pytest.mark.parametrize(
    ("old", "new"), re.findall(r"^\| [^|]+ \| `([^`|]+)` \| `([^`|]+)` \|", RENAMES, re.MULTILINE)
)
def test_each_new_column_of_the_table_is_written_somewhere(old, new):
    # some names are made of two parts: usd_predicted
    parts = (new, *(f"}}_{part}" for part in (new.partition("_")[2],) if part))
    assert old != new
    assert any(part in SOURCE for part in parts)


def test_the_changelog_leads_to_the_table():
    assert "(docs/renames.md)" in PAGE
    assert RENAMES.count("| before | now |") == 4


def test_the_page_of_benchmarks_is_a_table_with_a_few_lines_above():
    lines = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").splitlines()
    title, _, *rest = lines
    above = list(takewhile(lambda line: not line.startswith("|"), rest))
    assert title == "# Benchmarks"
    assert len(above) <= 6  # five lines and the empty one before the table
    assert rest[len(above)].startswith("| benchmark | what |")
    assert len(rest) > 100
