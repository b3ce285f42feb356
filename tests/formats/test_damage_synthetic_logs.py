"""Damage to logs of formats without public files: only `ReadError` comes out, as for the real ones."""

from __future__ import annotations

import json
import random

import pytest
from builders import assistant, session, step, system, user
from conftest import ALL, SEED
from log_damage import KINDS, read
from real_logs import FORMATS
from synthetic_logs import MADE, lines
from synthetic_logs_current_layouts import TODAY
from synthetic_logs_old_layouts import SHAPES

from ctxkit.errors import ReadError
from ctxkit.formats import all_readers, openai

EACH = 4_000 if ALL else 60
TALK = session(system(), user("fix it"), step(), assistant("done"))
TURN = {"session": "77d6be00", "agent": "Dev", "turn_output_tokens": 5}
ASKED = [
    {"role": "user", "content": "do"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "ls", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "no"}]},
]
OTHERS = {
    "openai": [b"".join(openai.encode_session(TALK)[0])],
    "anthropic": [json.dumps({"model": "claude-x", "messages": ASKED}).encode()],
    "fuseraft-snapshots": [
        lines(
            *(
                {"ts": f"2026-01-01T00:00:0{n}.0091413+00:00", "turn": n, "turn_input_tokens": 10}
                | {"cumulative_input_tokens": 10 * n + 10, **TURN}
                for n in range(4)
            )
        )
    ],
}
"""What others make in one shape only."""


def test_every_reader_is_held_to_the_contract_of_damage():
    """a new reader needs real files in `FORMATS`, or a made log"""
    held = {*FORMATS.values(), *MADE, *SHAPES, *OTHERS, *TODAY}
    assert {reader.NAME for reader in all_readers()} - {
        "native"
    } == held  # keeps ids as written, also twice


@pytest.mark.parametrize(
    ("logs", "name"), [(m, n) for m in (MADE, SHAPES, OTHERS, TODAY) for n in m]
)
def test_a_whole_log_is_read(logs: dict[str, list[bytes]], name: str):
    assert all(read(data, name)[0].messages for data in logs[name])


@pytest.mark.parametrize(
    ("logs", "name"), [(m, n) for m in (MADE, SHAPES, OTHERS, TODAY) for n in m]
)
def test_only_read_errors_come_out_of_damaged_logs(logs: dict[str, list[bytes]], name: str):
    r = random.Random(f"{SEED} {name}")
    for n in range(EACH):
        broken = logs[name][n % len(logs[name])]
        for _ in range(r.choice([1, 1, 2, 5])):
            broken = r.choice(KINDS)(broken, r) or b"{}"
        try:
            read(broken, name)
        except ReadError as e:
            assert "damaged" not in e.why, f"let {e.__cause__!r} out"  # noqa: PT017  the cause is told
            assert e.path == "damaged", f"{name} does not name the file: {e}"  # noqa: PT017
