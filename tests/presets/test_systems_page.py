"""The page of systems is made from the presets, and is current."""

import runpy
from pathlib import Path

from ctxkit import presets
from ctxkit.policies import Above, Count, Share, triggers

MADE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "make_systems.py"))


def test_the_page_is_current():
    assert MADE["PAGE"].read_text(encoding="utf-8") == MADE["page"]()


def test_every_preset_has_its_section():
    text = MADE["page"]()
    assert all(
        f"\n## {name}\n" in text and f"| [{name}](#{name}) |" in text for name in presets.names()
    )


def test_triggers_are_said_in_words():
    words = MADE["words"]
    assert words(Share(0.9, or_equal=True)) == "prompt ≥ 90% of the window"
    assert words(Share(1.0, of="budget"), 16_384) == "prompt > the window less 16,384"
    assert words(triggers.Both((Count(9), Above(5)))) == "≥ 9 messages and prompt > 5 tokens"
    assert (
        words(Above(5) | triggers.Overflow(recorded=True))
        == "prompt > 5 tokens or after a context error"
    )
