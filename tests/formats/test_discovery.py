"""Sessions on this machine: found by place, never read whole, links not followed."""

from __future__ import annotations

import os

import pandas as pd
import pytest

import ctxkit as ck
from ctxkit.formats import log_discovery


def put(home, path: str, data: bytes = b'{"a":1}\n{"b":2}\n'):
    file = home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


@pytest.fixture
def home(tmp_path):
    put(
        tmp_path,
        ".claude/projects/-w-shop/1.jsonl",
        b'{"subtype":"compact_boundary"}\n' * 2 + b"{}\n",
    )
    put(tmp_path, ".codex/sessions/2026/01/02/rollout-x.jsonl")
    put(tmp_path, ".codex/sessions/2026/01/02/notes.jsonl")
    put(tmp_path, ".local/share/opencode/storage/session/proj/ses_1.json", b"{}")
    put(tmp_path, ".aider.chat.history.md", b"#### hi\n")
    return tmp_path


def test_a_row_for_each_session(home):
    frame = ck.discover(home).set_index("tool")
    assert sorted(frame.index) == ["aider", "claude-code", "codex", "opencode"]
    claude = frame.loc["claude-code"]
    assert (claude["project"], claude["messages"], claude["compactions"]) == ("-w-shop", 3, 2)
    assert frame.loc["opencode", "messages":"compactions"].isna().all()
    assert {
        c: str(t) for c, t in ck.discover(home).dtypes.items()
    } == log_discovery.DISCOVERY_COLUMNS


def test_a_large_file_is_estimated_from_its_start(home):
    put(home, ".pi/agent/sessions/--w--/s.jsonl", b'{"type":"compaction"}\n' * 20_000)
    row = ck.discover(home).set_index("tool").loc["pi"]
    assert row["messages_source"] == "estimated"
    assert 19_000 < row["messages"] < 21_000
    assert row.isna()["compactions"]


def test_no_file_is_read_whole(home):
    file = put(home, ".pi/agent/sessions/--w--/s.jsonl", b"{}\n" * 100_000)
    os.truncate(file, 1 << 38)  # a quarter of a terabyte, of which the disk holds nothing
    row = ck.discover(home).set_index("tool").loc["pi"]
    assert row["size_bytes"] == 1 << 38


def test_links_are_not_followed(home):
    (home / ".pi/agent/sessions").mkdir(parents=True)
    (home / ".pi/agent/sessions/loop").symlink_to(home / ".pi/agent/sessions")
    (home / ".pi/agent/sessions/other").symlink_to(home / ".claude")
    assert "pi" not in set(ck.discover(home)["tool"])


def test_a_variable_moves_a_tools_folder(home, tmp_path, monkeypatch):
    put(tmp_path, "elsewhere/projects/-p/2.jsonl")
    monkeypatch.setenv("HOME", str(home / "nobody"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(home / ".claude")
    assert ck.discover()["path"].tolist() == [str(tmp_path / "elsewhere/projects/-p/2.jsonl")]


def test_an_empty_home_gives_an_empty_frame(tmp_path):
    frame = ck.discover(tmp_path)
    assert frame.empty
    assert {c: str(t) for c, t in frame.dtypes.items()} == log_discovery.DISCOVERY_COLUMNS


def test_names_are_made_safe_to_show(tmp_path):
    put(tmp_path, ".claude/projects/-w-\x1b[31mred/1.jsonl")
    assert "\x1b" not in ck.discover(tmp_path)["project"][0]


# -- how long they are kept -------------------------------------------------------------------------------------------


def test_what_goes_next_is_told(home):
    os.utime(home / ".claude/projects/-w-shop/1.jsonl", (1_000_000, 1_000_000))
    row = ck.discover(home).sort_values("goes").iloc[0]
    assert (row["tool"], row["keeps_days"]) == ("claude-code", 30.0)
    assert row["goes"].timestamp() == 1_000_000 + 30 * 86_400
    assert ck.discover(home).set_index("tool").loc["codex"].isna()["goes"]


@pytest.mark.parametrize(
    ("tool", "settings", "days"),
    [
        ("claude", '{"cleanupPeriodDays": 90}', 90),
        ("claude", "{", 30),
        ("claude", '{"cleanupPeriodDays": "x"}', 30),
        ("gemini", "{}", None),
        ("gemini", '{"general": {"sessionRetention": {"enabled": true, "maxAge": "2w"}}}', 14),
        (
            "gemini",
            '{"general": {"sessionRetention": {"enabled": true, "maxCount": 5}}} // few',
            None,
        ),
        ("gemini", '{"general": {"sessionRetention": {"maxAge": "12h"}}}', None),
        ("gemini", '{"general": []}', None),
    ],
)
def test_a_tools_settings_say_for_how_long(tmp_path, tool, settings, days):
    put(tmp_path, f".{tool}/settings.json", settings.encode())
    put(tmp_path, ".claude/projects/-w/1.jsonl")
    put(tmp_path, ".gemini/tmp/abc/chats/session-1.json")
    name = {"claude": "claude-code", "gemini": "gemini-cli"}[tool]
    found = ck.discover(tmp_path).set_index("tool").loc[name, "keeps_days"]
    assert found == days if days is not None else found is pd.NA


def test_settings_are_read_up_to_their_largest_size(tmp_path, monkeypatch):
    settings = b'{"cleanupPeriodDays": 90}'
    put(tmp_path, ".claude/settings.json", settings)
    put(tmp_path, ".claude/projects/-w/1.jsonl")
    for max_bytes, days in ((len(settings), 90), (len(settings) - 1, 30)):
        monkeypatch.setattr(log_discovery, "_MAX_SETTINGS_BYTES", max_bytes)
        assert ck.discover(tmp_path)["keeps_days"].tolist() == [days]


def test_the_places_of_today(tmp_path):
    put(tmp_path, ".codex/archived_sessions/rollout-a.jsonl.zst", b"\x28\xb5\x2f\xfd")
    put(tmp_path, ".local/share/opencode/opencode.db", b"SQLite format 3\0")
    put(tmp_path, ".local/share/opencode/log/other.db", b"SQLite format 3\0")
    put(tmp_path, ".local/share/goose/sessions/sessions.db", b"SQLite format 3\0")
    put(tmp_path, ".copilot/session-state/x/events.jsonl")
    task = "globalStorage/saoudrizwan.claude-dev/tasks/17/api_conversation_history.json"
    put(tmp_path, f".config/Code/User/{task}", b"[]")
    frame = ck.discover(tmp_path).set_index("tool")
    assert sorted(frame.index) == ["cline", "codex", "copilot-cli", "goose", "opencode"]
    assert frame.loc["codex", "messages":"compactions"].isna().all()
    assert frame.loc["cline", "path"].endswith("tasks/17")
