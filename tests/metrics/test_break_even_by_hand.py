"""Requests until a reset of the context is paid back, in round numbers."""

from __future__ import annotations

import math

import pytest

from ctxkit.metrics import breakeven

PRICES = {"cost_usd": 0.0, "read_price": 1.0, "write_price": 11.0}
"""A written token costs ten more than a read one."""


@pytest.mark.parametrize(
    ("more", "requests"),
    [
        ({}, 20 * 10 / 80),  # 20 tokens are written again, and each request saves 80
        ({"front": 4}, 16 * 10 / 80),
        ({"front": 20}, 0.0),
        ({"cost_usd": 160.0}, (160 + 20 * 10) / 80),
        ({"cached_tokens": 90}, 10 * 10 / 80),  # 10 of the 100 would have been written anyway
        ({"cached_tokens": 0}, 0.0),
        ({"cached_tokens": 2, "front": 4}, 0.0),
    ],
)
def test_a_reset_is_paid_back_by_what_each_request_saves(more, requests):
    assert breakeven.requests_until_reset_pays(100, 20, **PRICES | more) == pytest.approx(requests)


def test_a_reset_that_saves_nothing_is_never_paid_back():
    assert breakeven.requests_until_reset_pays(20, 20, **PRICES) == math.inf
    assert breakeven.requests_until_reset_pays(10, 20, **PRICES) == math.inf
