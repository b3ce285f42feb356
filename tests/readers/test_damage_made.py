"""Damage to logs of formats without public files: only `ReadError` comes out, as for the real ones."""

from __future__ import annotations

import random

import pytest
from conftest import ALL, SEED
from damage import KINDS, read
from made_logs import MADE
from made_shapes import SHAPES

from ctxkit.errors import ReadError

EACH = 4_000 if ALL else 60


@pytest.mark.parametrize(("logs", "name"), [(m, n) for m in (MADE, SHAPES) for n in m])
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
