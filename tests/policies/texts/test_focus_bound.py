"""The focus of a summary is one line of at most 2,000 characters, whatever was typed."""

from ctxkit.policies.texts.extracts import parse_focus


def test_a_focus_is_one_bounded_line():
    assert parse_focus("the\n  cache   key").text == "the cache key"
    long = parse_focus("cache " * 2000)
    assert len(long.text) <= 2000
    assert long.terms == parse_focus("cache").terms
