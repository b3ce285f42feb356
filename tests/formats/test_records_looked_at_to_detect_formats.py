"""How many first records of a file decide its format: all of them, or one among them, have its marks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic_logs import lines
from synthetic_logs_current_layouts import OPENCODE_RUN

from ctxkit.formats import Source, get_reader

GOLDEN = Path(__file__).parent / "golden"
FOREIGN = {"x": 1}
LANGCHAIN = {"type": "human", "data": {"content": "go"}}
OPENHANDS = {
    "kind": "MessageEvent",
    "id": "e",
    "source": "user",
    "timestamp": "2026-03-01T10:00:00",
}


def read_first(name: str) -> dict:
    return json.loads((GOLDEN / name).read_bytes().splitlines()[0])


ALL = {
    "codex-exec": (read_first("codex-exec.jsonl"), 4),
    "copilot-cli": ({"type": "user.message", "data": {}, "id": "e", "parentId": None}, 8),
    "langchain": (LANGCHAIN, 4),
    "opencode": (json.loads(OPENCODE_RUN.splitlines()[0]), 4),
    "openhands": (OPENHANDS, 4),
    "qwen-code": (read_first("qwen-code.jsonl"), 4),
    "sharegpt": (read_first("sharegpt.jsonl"), 4),
    "tau-bench": ({"messages_display": "user: Hi."}, 4),
}
"""A record that each of the first ones must be like, and how many are looked at."""
ONE = {
    "codex": (read_first("codex.jsonl"), 4),
    "copilot-cli": (read_first("copilot-cli.jsonl"), 8),
    "ctxkit": ({"type": "custom", "customType": "ctxkit.session"}, 4),
    "fuseraft-events": (read_first("fuseraft-events.jsonl"), 3),
    "fuseraft-snapshots": (read_first("fuseraft-snapshots.jsonl"), 4),
    "kimi-cli": ({"role": "_checkpoint", "id": 0}, 4),
    "pi": (read_first("pi.jsonl"), 4),
}
"""A record one of which is enough, and among how many."""


@pytest.mark.parametrize("name", ALL)
def test_each_of_the_first_records_has_the_marks_of_its_format(name):
    record, n = ALL[name]
    sniff = get_reader(name).sniff
    assert sniff(Source("x", lines(*[record] * n, FOREIGN)))
    assert not sniff(Source("x", lines(*[record] * (n - 1), FOREIGN)))


@pytest.mark.parametrize("name", ONE)
def test_one_of_the_first_records_has_the_marks_of_its_format(name):
    record, n = ONE[name]
    sniff = get_reader(name).sniff
    assert sniff(Source("x", lines(*[FOREIGN] * (n - 1), record)))
    assert not sniff(Source("x", lines(*[FOREIGN] * n, record)))


def test_anthropics_blocks_are_among_the_first_16_of_the_first_64_messages():
    text, call = {"type": "text", "text": "a"}, {"type": "tool_use", "id": "c", "name": "f"}
    plain = {"role": "user", "content": [text]}
    with_call = {"role": "assistant", "content": [*[text] * 15, call]}
    late_call = {"role": "assistant", "content": [*[text] * 16, call]}
    tool = {"role": "tool", "content": "b"}
    for messages, is_anthropic in (
        ([*[plain] * 63, with_call], True),
        ([*[plain] * 64, with_call], False),
        ([plain, late_call], False),
        # other roles are another provider's
        ([with_call, *[plain] * 62, tool], False),
        ([with_call, *[plain] * 63, tool], True),
    ):
        document = json.dumps(messages).encode()
        for data in (document, b'{"messages": %b}' % document):
            assert get_reader("anthropic").sniff(Source("x", data)) == is_anthropic


@pytest.mark.parametrize(
    ("start", "is_aider"), [("", True), ("\n ", True), ("{", False), (" [", False)]
)
def test_a_file_that_begins_as_json_is_no_history_of_aider(start, is_aider):
    data = f"{start}# aider chat started at 2024-08-05 13:33:02\n\n#### go\n".encode()
    assert get_reader("aider").sniff(Source("x", data)) == is_aider
