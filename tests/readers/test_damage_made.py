"""Damage to logs of formats without public files: only `ReadError` comes out, as for the real ones."""

from __future__ import annotations

import random

import pytest
from conftest import ALL, SEED
from damage import KINDS, read
from made_logs import MADE

from ctxkit.errors import ReadError

EACH = 4_000 if ALL else 60


@pytest.mark.parametrize("name", MADE)
def test_only_read_errors_come_out_of_damaged_logs(name: str):
    r = random.Random(f"{SEED} {name}")
    for n in range(EACH):
        broken = MADE[name][n % len(MADE[name])]
        for _ in range(r.choice([1, 1, 2, 5])):
            broken = r.choice(KINDS)(broken, r) or b"{}"
        try:
            read(broken, name)
        except ReadError as e:
            assert "damaged" not in e.why, f"let {e.__cause__!r} out"  # noqa: PT017  the cause is told
