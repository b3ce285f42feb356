"""The page of systems is made from the presets, and is current."""

from __future__ import annotations

import runpy
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from ctxkit import presets
from ctxkit.errors import CtxkitError
from ctxkit.policies import Above, AntiThrash, Chain, Count, Fallback, Share, Tail, triggers
from ctxkit.presets import INERT_SETTINGS, names, preset, preset_differences

MADE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "make_systems.py"))


def test_the_page_is_current():
    assert MADE["PAGE"].read_text(encoding="utf-8") == MADE["format_page"]()


def test_every_preset_has_its_section():
    text = MADE["format_page"]()
    assert all(
        f"\n## {name}\n" in text and f"| [{name}](#{name}) |" in text for name in presets.names()
    )


def test_triggers_are_said_in_words():
    describe = MADE["describe_trigger"]
    assert describe(Share(0.9, or_equal=True)) == "prompt ≥ 90% of the window"
    assert describe(Share(1.0, of="budget"), 16_384) == "prompt > the window less 16,384"
    assert describe(triggers.Both((Count(9), Above(5)))) == "≥ 9 messages and prompt > 5 tokens"
    assert (
        describe(Above(5) | triggers.Overflow(recorded=True))
        == "prompt > 5 tokens or after a context error"
    )


WITHOUT_SOURCE = {"fased", "swe_agent_mask", "none"}
"""Presets whose docstring names no document or file."""


@pytest.mark.parametrize("name", sorted(set(names()) - WITHOUT_SOURCE))
def test_a_section_names_the_source_of_its_preset(name):
    assert any(line.startswith("| source | ") for line in MADE["format_section"](name))


def test_sources_are_read_from_the_labelled_paragraphs_of_a_docstring():
    docstring = """Return rules.

    Not confirmed: the
    share.

    This is no Source: at all.

    Source: `a.py` at 1234567 (0.5).
    """
    assert MADE["read_labelled_paragraphs"](docstring) == [
        ("Source", "`a.py` at 1234567 (0.5)"),
        ("Not confirmed", "the share"),
    ]


@pytest.mark.parametrize("name", sorted(INERT_SETTINGS))
def test_a_section_names_every_setting_without_effect_and_what_holds_it(name):
    rows = [row for row in MADE["format_section"](name) if row.startswith("| no effect | ")]
    for inert in INERT_SETTINGS[name]:
        (row,) = [row for row in rows if inert.why in row and f"(`{inert.controller}`:" in row] or [
            row for row in rows if not inert.controller and f"({inert.why})" in row
        ]
        assert [setting for setting in inert.settings if f"`{setting}`" not in row] == []


@pytest.mark.parametrize("name", [name for name in names() if preset_differences(name)])
def test_a_section_names_every_difference_and_links_to_its_table(name):
    (row,) = [row for row in MADE["format_section"](name) if row.startswith("| differs in | ")]
    assert [d.topic for d in preset_differences(name) if d.topic not in row] == []
    assert f"\n### {name}\n" in (MADE["PAGE"].parent / "conformance.md").read_text("utf-8")
    assert f"(conformance.md#{name})" in row


# -- The page of systems speaks of the settings that a preset works with, not only of its classes.


PAGE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "make_systems.py"))
describe_policy = PAGE["describe_policy"]


def list_parts(policy):
    if isinstance(policy, (Chain, Fallback)):
        return [found for part in policy.parts for found in list_parts(part)]
    return [policy] if is_dataclass(policy) else []


def list_changed_parts(policy):
    """Yield the policy with one of its switches or numbers changed, and the name of the setting."""
    for f in fields(policy):
        value = getattr(policy, f.name)
        if f.init and type(value) in {bool, int, float}:
            other = not value if isinstance(value, bool) else value * 2 + 1
            try:
                yield f.name, replace(policy, **{f.name: other})
            except (CtxkitError, ValueError):
                continue


@pytest.mark.parametrize("name", names())
def test_a_preset_with_another_setting_has_another_page(name):
    rules = preset(name)
    parts = [
        p for policy in (rules.policy, rules.pruning, *rules.guards) for p in list_parts(policy)
    ]
    same = [
        f"{type(part).__name__}.{setting}"
        for part in parts
        for setting, changed in list_changed_parts(part)
        if describe_policy(changed) == describe_policy(part)
    ]
    assert same == []


def test_what_a_preset_switches_off_stands_behind_the_sentence_of_the_class():
    plain, without = Tail(messages=9), Tail(messages=9, pin_corrections=False)
    assert "`pin_corrections=True`" in describe_policy(plain)
    assert "pin_corrections" not in describe_policy(plain, whole=False)
    for whole in (True, False):
        assert "`pin_corrections=False`" in describe_policy(without, whole=whole)


def test_a_part_stands_with_its_own_settings_and_a_long_text_by_its_length():
    format_value = PAGE["format_value"]
    assert format_value(AntiThrash(window=7)) == "AntiThrash(window=7)"
    assert format_value(triggers.Overflow()) == "Overflow()"
    assert format_value("x" * 2000) == "a text of 2,000 characters"
    assert "`" not in format_value("`x`")
