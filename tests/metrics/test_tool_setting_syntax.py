"""The setting that `when` proposes makes the tool's own rules compact at that size."""

from __future__ import annotations

import json
import re

import pytest

import ctxkit as ck
from ctxkit.formats import format_names
from ctxkit.metrics.trigger_setting_instructions_by_agent import (
    TRIGGER_SETTINGS,
    describe_trigger_setting,
)

WINDOW = 200_000
FILES = {
    "codex": "config.toml",
    "codex-exec": "config.toml",
    "pi": "settings.json",
    "gemini-cli": "settings.json",
}
SYSTEMS = {"codex": "codex", "codex-exec": "codex", "pi": "pi", "gemini-cli": "gemini"}


def first_compaction(rules):
    """The size of the prompt before the first compaction of a session that grows past the window."""
    session = ck.read(
        [
            m
            for i in range(420)
            for m in (
                {"role": "user", "content": f"Step {i}: " + "word and other words " * 140},
                {"role": "assistant", "content": "Done."},
            )
        ]
    )
    frame = ck.frame(ck.replay(session, rules), per="compaction")
    return int(frame["tokens_before"].iloc[0])


@pytest.mark.parametrize("log_format", FILES)
@pytest.mark.parametrize("trigger", [60_000, 120_000])
def test_the_tools_own_loader_takes_the_setting_and_compacts_there(tmp_path, log_format, trigger):
    setting = describe_trigger_setting(log_format, trigger, WINDOW).split("\n", 1)[1]
    path = tmp_path / FILES[log_format]
    path.write_text(setting.strip() + "\n")
    rules = ck.load_rules(path, system=SYSTEMS[log_format])
    settings = {**rules.parameters, "context_window": WINDOW}
    at = first_compaction(getattr(ck.presets, SYSTEMS[log_format])(**settings))
    assert at == pytest.approx(trigger, rel=0.05)


@pytest.mark.parametrize("trigger", [40_000, 60_000, 120_000, 160_000])
def test_claude_code_is_told_the_window_that_it_compacts_before(trigger):
    setting = describe_trigger_setting("claude-code", trigger, WINDOW)
    if window := re.search(r"/autocompact (\d+)k", setting):
        rules = ck.presets.claude_code(
            context_window=WINDOW, auto_compact_window=1000 * int(window[1])
        )
    else:
        percent = float(re.search(r'OVERRIDE": "(\d+)"', setting)[1])
        rules = ck.presets.claude_code(context_window=WINDOW, autocompact_pct_override=percent)
    assert first_compaction(rules) == pytest.approx(trigger, rel=0.05)


def test_later_than_claude_code_can_is_its_default():
    assert "/autocompact auto" in describe_trigger_setting("claude-code", 190_000, WINDOW)


def test_goose_opencode_and_fuseraft_name_the_share_or_the_rest():
    assert describe_trigger_setting("goose", 150_000, WINDOW).endswith("THRESHOLD: 0.75")
    reserved = describe_trigger_setting("opencode", 150_000, WINDOW).split("\n")[1]
    assert json.loads(reserved) == {"compaction": {"reserved": 50_000}}
    assert "TokenBudget: 150000" in describe_trigger_setting("fuseraft-events", 150_000, WINDOW)


KIMI = "[loop_control]\n  reserved_context_size = {}\n  compaction_trigger_ratio = {}"


@pytest.mark.parametrize(
    ("log_format", "trigger", "setting"),
    [
        ("kimi-cli", 150_000, KIMI.format(50_000, "0.75")),
        ("kimi-cli", 200_000, KIMI.format(0, "1.00")),
        ("goose", 250_000, "GOOSE_AUTO_COMPACT_THRESHOLD: 1.00"),
        ("qwen-code", 150_000, '{"context": {"autoCompactThreshold": 0.75}}'),
        ("native", 150_000, "Rules(policy=..., trigger=triggers.Above(150_000))"),
        ("codex", 190_000, "model_auto_compact_token_limit = 180000"),  # at most 90 %
        ("claude-code", 167_000, "/autocompact auto, which is as late as it can"),
        ("claude-code", 166_000, "/autocompact 199k"),
        ("claude-code", 67_000, "/autocompact 100k"),
        # below the smallest window, as a share of the 180,000 tokens without the reply's reserve
        (
            "claude-code",
            63_000,
            '"env": {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "35"} in settings.json',
        ),
    ],
)
def test_a_setting_is_written_for_its_trigger_in_its_window(log_format, trigger, setting):
    assert describe_trigger_setting(log_format, trigger, WINDOW).split("\n  ", 1)[1] == setting


def test_each_format_is_answered_and_each_setting_is_of_a_format():
    assert set(TRIGGER_SETTINGS) <= set(format_names())
    for name in format_names():
        lines = describe_trigger_setting(name, 144_000, WINDOW).splitlines()
        assert max(map(len, lines)) <= 80
        assert name in TRIGGER_SETTINGS or "by hand at 144,000" in lines[0]
