"""Prices and limits: the row of the table that is meant, or nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest
from builders import usage
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ctxkit.data import DATA_DIR
from ctxkit.errors import BadArguments, StoreError
from ctxkit.session import Usage
from ctxkit.tokens import prices
from ctxkit.tokens import prices as updates

TABLE = json.loads((DATA_DIR / "prices.json").read_text())["rows"]


def test_a_row_is_read_whole() -> None:
    row, price = TABLE["claude-opus-4-5"], prices.price("claude-opus-4-5")
    assert price.input == row["input_cost_per_token"] == 5e-06
    assert price.output == row["output_cost_per_token"]
    assert price.cache_read == row["cache_read_input_token_cost"]
    assert price.cache_write == row["cache_creation_input_token_cost"]
    assert price.cache_write_1h == row["cache_creation_input_token_cost_above_1hr"]
    assert (price.context_limit, price.output_limit, price.min_cacheable) == (200_000, 64_000, 4096)
    assert price.source.startswith("litellm ")


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4-5-20251101"),
        ("claude-opus-4-5-20991231", "claude-opus-4-5"),
        ("anthropic/claude-opus-4.5", "claude-opus-4-5"),
        ("openrouter/anthropic/claude-opus-4.5", "claude-opus-4-5"),
        ("bedrock/xx.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5-20251101"),
        ("vertex/claude-opus-4-5@20251101", "claude-opus-4-5-20251101"),
        ("openai/gpt-4o", "gpt-4o"),
        ("GPT-4o-2024-08-06", "gpt-4o-2024-08-06"),
        ("glm-4.6", "zai/glm-4.6"),
    ],
)
def test_spellings_of_a_name(name: str, entry: str) -> None:
    assert prices.price(name).entry == entry


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "gpt",
        "claude",
        "claude-opus-99",
        "ollama/deepseek-chat",
        "sample_spec",
        "<synthetic>",
        "/",
        "a/",
    ],
)
def test_an_unknown_model_has_no_price(name: str | None) -> None:
    assert prices.price(name) is None
    assert prices.context_limit(name) is None
    assert prices.cost_usd(usage(), name) is None


@given(st.text(max_size=30) | st.sampled_from(sorted(TABLE)))
def test_no_name_breaks_it(name: str) -> None:
    price = prices.price(name)
    assert price is None or (price.input >= 0 and price.output >= 0)


def test_a_claude_that_only_a_platform_lists_is_marked() -> None:
    price = prices.price("claude-sonnet-4-20250514")
    assert price.input == 3e-06
    assert "platform" in price.derived


def test_a_missing_hour_price_is_twice_the_input_and_marked() -> None:
    row = {
        "input_cost_per_token": 3e-6,
        "output_cost_per_token": 1.5e-5,
        "cache_creation_input_token_cost": 3.75e-6,
    }
    price = prices._parse_price("claude-x", row)
    assert price.cache_write_1h == 6e-6
    assert price.derived == ("cache_write_1h",)
    assert prices._parse_price("gpt-x", row).cache_write_1h is None


def test_every_class_is_billed_by_its_price() -> None:
    whole = Usage(
        input_tokens=1000,
        cache_read_tokens=2000,
        cache_write_tokens=3000,
        cache_write_1h_tokens=4000,
        output_tokens=500,
    )
    by_hand = (1000 * 5 + 2000 * 0.5 + 3000 * 6.25 + 4000 * 10 + 500 * 25) / 1e6
    assert prices.cost_usd(whole, "claude-opus-4-5") == pytest.approx(by_hand)


def test_usage_that_is_not_whole_has_no_cost() -> None:
    assert prices.cost_usd(Usage(input_tokens=10), "gpt-4o") is None
    assert prices.cost_usd(Usage(output_tokens=10), "gpt-4o") is None
    assert prices.cost_usd(None, "gpt-4o") is None
    assert prices.cost_usd(Usage(input_tokens=0, output_tokens=0), "gpt-4o") == 0


def test_a_long_prompt_is_billed_whole_by_its_tier() -> None:
    price = prices.price("gemini/gemini-2.5-pro")
    (tier,) = price.tiers
    assert (tier.above, tier.input) == (200_000, 2 * price.input)
    assert price.cost_usd(usage(200_000, output=10)) == pytest.approx(
        200_000 * price.input + 10 * price.output
    )
    assert price.cost_usd(usage(200_001, output=10)) == pytest.approx(
        200_001 * tier.input + 10 * tier.output
    )


def test_a_class_without_a_price_costs_as_fresh_input() -> None:
    price = prices.Price(input=1.0, output=2.0)
    assert (
        price.cost_usd(Usage(cache_read_tokens=3, cache_write_1h_tokens=4, output_tokens=1))
        == 3 + 4 + 2
    )


def test_a_window_of_a_million_may_stand_in_the_name() -> None:
    assert prices.context_limit("claude-sonnet-4-5[1m]") == 1_000_000
    assert prices.context_limit("claude-sonnet-4-5") == 200_000


def test_own_prices_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "_registered", {})
    own = prices.Price(input=1e-6, output=2e-6, context_limit=1234)
    prices.register("local/Mine", own)
    prices.register("gpt-4o", own)
    assert prices.price("local/mine") == prices.price("gpt-4o") == own
    assert prices.context_limit("local/mine") == 1234
    prices._find_price.cache_clear()


@pytest.mark.parametrize("wrong", [-1e-6, float("nan"), float("inf")])
@pytest.mark.parametrize("of", ["input", "output", "cache_read", "cache_write", "cache_write_1h"])
def test_no_price_is_negative_or_no_number(of: str, wrong: float) -> None:
    own = prices.Price(**{"input": 0.0, "output": 0.0, of: wrong})
    tier = prices.Price(input=0.0, output=0.0, tiers=(prices.PriceTier(1000, **{of: wrong}),))
    for each in (own, tier):
        with pytest.raises(BadArguments, match="not negative"):
            prices.register("x", each)
    assert "x" not in prices._registered


def test_litellm_is_not_imported() -> None:
    script = "import sys; from ctxkit import prices; print(prices.context_limit('gpt-4o'), 'litellm' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], env=os.environ, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["128000", "False"]


@pytest.fixture
def cache(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """A cache folder of its own; the table is read again before and after."""
    monkeypatch.setenv("CTXKIT_CACHE_DIR", str(tmp_path / "cache"))
    prices.clear_price_cache()
    yield tmp_path / "cache"
    monkeypatch.undo()
    prices.clear_price_cache()


def test_the_table_says_of_when_it_is(cache) -> None:
    found = re.fullmatch(r"litellm [\d.]+ of (\d{4}-\d\d-\d\d)", prices.table_version())
    assert found
    assert prices.price("gpt-4o").source == prices.table_version()


def test_the_table_that_is_carried_is_litellms(cache) -> None:
    made = json.loads(updates.read_installed_litellm_prices("2026-01-01"))
    if made["source"] != json.loads((DATA_DIR / "prices.json").read_text())["source"]:
        pytest.skip("another LiteLLM is installed than the carried table is of")
    assert made["rows"] == TABLE
    full = (
        Path(util.find_spec("litellm").origin).parent
        / "model_prices_and_context_window_backup.json"
    )
    whole = json.loads(full.read_text())
    priced = {
        k
        for k, row in whole.items()
        if {"input_cost_per_token", "output_cost_per_token"} <= row.keys()
    }
    assert set(TABLE) >= {k for k in priced - {"sample_spec"} if whole[k]["input_cost_per_token"] is not None
                          and whole[k]["output_cost_per_token"] is not None}  # fmt: skip


def test_an_update_is_taken_at_once_and_kept(cache, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {**TABLE, "new-model": {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6},
            "gpt-4o": {**TABLE["gpt-4o"], "input_cost_per_token": 9e-6}}  # fmt: skip
    table = {"source": "litellm 9.9.9", "date": "2999-01-01", "rows": rows}
    monkeypatch.setattr(
        prices, "read_installed_litellm_prices", lambda date: json.dumps(table).encode()
    )
    assert (
        prices.update()
        == f"Prices of litellm 9.9.9 of 2999-01-01: {len(rows):,} models, 1 new, 1 changed."
    )
    assert prices.price("gpt-4o").input == 9e-6
    assert prices.price("new-model").source == "litellm 9.9.9 of 2999-01-01"
    script = "from ctxkit import prices; print(prices.price('new-model').output)"
    run = subprocess.run(
        [sys.executable, "-c", script], env=os.environ, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "2e-06"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"source": "x", "date": "2999", "rows": 5}'])
def test_a_damaged_table_of_ones_own_is_passed_over(cache, data) -> None:
    cache.mkdir()
    (cache / "prices.json").write_bytes(data)
    prices.clear_price_cache()
    assert prices.price("gpt-4o") is not None


def test_an_older_table_of_ones_own_is_passed_over(cache) -> None:
    cache.mkdir()
    (cache / "prices.json").write_text('{"source": "litellm 1", "date": "2020-01-01", "rows": {}}')
    assert prices.price("gpt-4o") is not None


def test_without_litellm_there_is_nothing_newer(cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert prices.price("gpt-4o") is not None
    with pytest.raises(StoreError, match=r"jupyter-ctxkit\[live\]"):
        prices.update()
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_a_sentence(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CTXKIT_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="could not be kept"):
        prices.update()
    prices.clear_price_cache()


def get_recorded_usage(reply):
    """Return a reply's usage as the log has it, without the estimate of an aborted output."""
    output = reply.details.get("recorded_output_tokens", reply.usage.output_tokens)
    return replace(reply.usage, output_tokens=output)


def test_recorded_costs_come_out_again(real) -> None:
    from ctxkit.formats import reading

    session = reading.read(real / "pi" / "before-compaction.jsonl")
    billed = [
        (get_recorded_usage(c.message), c.message.model)
        for c in session.calls
        if c.message.usage and c.message.usage.cost_usd
    ]
    for used, model in billed:
        assert prices.cost_usd(used, model) == pytest.approx(used.cost_usd, rel=1e-6)
    assert sum(u.cost_usd for u, _ in billed) == pytest.approx(42.60, abs=0.01)


@pytest.mark.parametrize(
    ("own", "read", "short", "hour"),
    [
        ({}, 3.0, 3.0, 3.0),
        ({"cache_read": 0.3}, 0.3, 3.0, 3.0),
        ({"cache_write": 3.75}, 3.0, 3.75, 3.75),
        ({"cache_write": 3.75, "cache_write_1h": 6.0}, 3.0, 3.75, 6.0),
        ({"cache_read": 0.0, "cache_write": 0.0}, 0.0, 0.0, 0.0),
    ],
)
def test_a_class_without_a_price_of_its_own_is_billed_as_the_next(own, read, short, hour) -> None:
    p = prices.Price(input=3.0, output=15.0, **own)
    assert (p.read, p.write(), p.write(hour=True)) == (read, short, hour)
    asked = p.request_usd(10, 2), p.request_usd(10, 2, cached=True)
    assert asked == (10 * 3.0 + 2 * 15.0, 10 * read + 2 * 15.0)


def test_a_call_of_its_own_is_billed_by_the_length_of_its_prompt() -> None:
    p = prices.Price(input=1.0, output=1.0, tiers=(prices.PriceTier(above=10, input=5.0),))
    assert (p.request_usd(10, 1), p.request_usd(11, 1)) == (11.0, 56.0)
