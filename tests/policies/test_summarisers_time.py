"""No text makes the extractive summary slow: a long word without a cue is looked at once."""

from __future__ import annotations

from builders import user

from ctxkit.policies import CUE_PATTERN, ExtractiveSummariser


def test_a_megabyte_without_a_space_is_one_scan():
    assert CUE_PATTERN.search("y" * 1_000_000) is None
    assert ExtractiveSummariser().extract([user("z" * 1_000_000)], 100).startswith("User: zzz")


def test_a_path_is_still_a_cue():
    assert CUE_PATTERN.search("look at src/app.py")
