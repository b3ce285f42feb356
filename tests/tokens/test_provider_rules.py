"""Rules of providers: each has a source and a day, and the price table agrees with them."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from builders import session, user
from cached_sessions import reply

from ctxkit.engine import find_miss_cause, get_call_features
from ctxkit.metrics import compaction_formulas
from ctxkit.session import Usage
from ctxkit.tokens import find_rule, prices
from ctxkit.tokens.provider_rules import (
    DEFAULT_CACHE_LIFE,
    Fact,
    compare_tokenizers,
    describe_cache_rules,
    get_comparison_models,
    get_provider,
    get_value,
    load_provider_rules,
)

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DAY = re.compile(r"20\d\d-[01]\d-[0-3]\d")
KNOWN_TO_DIFFER = {"claude-mythos-preview"}  # the note of the rule says so
TABLED = [n for n in prices.price_table_rows() if "/" not in n and get_provider(n) != "other"]


def test_the_page_is_made_from_the_data():
    made = runpy.run_path(str(DOCS / "make_providers.py"))
    assert (DOCS / "providers.md").read_text(encoding="utf-8") == made["format_page"]()
    assert set(made["FACTS"]) == set(get_args(Fact))


@pytest.mark.parametrize(
    "rule", load_provider_rules(), ids=lambda r: f"{r.fact}-{r.models}-{r.value}"
)
def test_every_rule_has_a_source_a_day_and_models(rule):
    assert rule.source.startswith("https://") or (DOCS.parent / rule.source).is_file()
    assert DAY.fullmatch(rule.read)
    assert all(DAY.fullmatch(d) for d in (rule.since, rule.until) if d)
    assert (rule.since or "") < (rule.until or "9")
    assert any(rule.is_about(n) for n in prices.price_table_rows()), "no model of the table"


@pytest.mark.parametrize("name", [n for n in TABLED if re.search("claude-|gpt-(5|6)", n)])
def test_the_price_table_agrees_with_the_rules(name):
    p = prices.price(name)
    if p is None or not p.input:
        pytest.skip("no price of input")
    if p.cache_read and "audio" not in name:
        assert p.cache_read / p.input == pytest.approx(get_value("read_share", name), rel=0.02)
    if p.cache_write:
        assert p.cache_write / p.input == pytest.approx(get_value("write_share", name))
    table = msgspec.json.decode(prices.price_table_rows()[name]).get("prompt_cache_min_tokens")
    if table and name not in KNOWN_TO_DIFFER:
        assert table == p.min_cacheable == get_value("minimum_prefix", name)
    tier = get_value("price_tier", name)
    if tier and p.tiers:
        (long,) = p.tiers
        assert long.above == tier["above"]
        assert long.input / p.input == pytest.approx(tier["input"])
        assert long.output / p.output == pytest.approx(tier["output"])


def test_gpt_5_6_and_later_keep_a_prefix_half_an_hour():
    """Five calls, pauses of 60, 600, 1,200 and 60 seconds: none is longer than the cache lives."""
    calls, at = [], 0.0
    for i, pause in enumerate((0.0, 60.0, 600.0, 1_200.0, 60.0)):
        at += pause
        calls += [user(time=at), reply(20_000 + 500 * i, 0, time=at + 1, model="gpt-6-sol")]
        at += 1
    features = get_call_features(session(*calls, model="gpt-6-sol"))
    assert {f.life for f in features} == {1800.0}
    assert [find_miss_cause(f) for f in features[1:]] == ["unexplained"] * 4
    assert {f.block for f in features} == {1024}


def test_a_call_bills_writes_that_its_log_leaves_out():
    bare = Usage(input_tokens=10_000, cache_read_tokens=90_000, output_tokens=0)
    short = Usage(input_tokens=900, cache_read_tokens=0, output_tokens=0)
    stated = Usage(
        input_tokens=0, cache_read_tokens=90_000, cache_write_tokens=10_000, output_tokens=0
    )
    new, old = prices.price("gpt-6-sol"), prices.price("gpt-5")
    assert new.cost_usd(bare) == pytest.approx(90_000 * 0.2e-6 + 10_000 * 2.5e-6)
    assert new.cost_usd(bare) == pytest.approx(new.cost_usd(stated))
    assert new.cost_usd(short) == pytest.approx(900 * 2e-6)
    assert old.cost_usd(bare) == pytest.approx(90_000 * 0.125e-6 + 10_000 * 1.25e-6)


def test_a_price_holds_on_its_days():
    """Reads of Sonnet 5.5 were halved on 2026-10-07."""
    usage = Usage(input_tokens=0, cache_read_tokens=1_000_000, output_tokens=0)
    september, november = 1_790_000_000.0, 1_795_000_000.0
    costs = [
        prices.cost_usd(usage, "claude-sonnet-5-5", at=t) for t in (september, november, None, 9.0)
    ]
    assert costs == pytest.approx([0.2, 0.1, 0.1, 0.1])


def test_keep_alive_and_mutations_go_by_the_model():
    models = ("claude-opus-5", "claude-opus-5-5", "claude-fable-5-1")
    limits = [compaction_formulas.keep_alive_limit(model=m) for m in models]
    assert limits == pytest.approx([3_750, 7_500, 15_000])
    reads = [compaction_formulas.reads_until_mutation_pays(10_000, 40_000, model=m) for m in models]
    assert reads == pytest.approx([46, 96, 196])
    with pytest.raises(
        compaction_formulas.BadArguments, match="No provider's rule is known for model 'x'"
    ):
        compaction_formulas.keep_alive_limit(model="x")


def test_models_of_today_are_compared_and_have_prices():
    names = get_comparison_models()
    assert names == ["claude-sonnet-5-5", "claude-haiku-5-5", "gpt-6.1-sol", "gemini-3.8-flash"]
    assert all(prices.price(n) for n in names)
    assert compare_tokenizers("claude-opus-4-5", "claude-haiku-5-5") == 1.3
    assert compare_tokenizers("claude-opus-5-5", "claude-haiku-5-5") == 1.0
    assert compare_tokenizers("claude-opus-4-5", "gpt-6.1-sol") is None


def test_an_unknown_model_has_no_rule_and_says_so():
    assert (
        describe_cache_rules("llama-4")
        == "No provider's rule is known for model 'llama-4': lives, blocks and refusals are assumed."
    )
    assert "without a name" in describe_cache_rules(None)
    assert all(find_rule(f, "llama-4") is None for f in get_args(Fact))
    assert find_rule("cache_life", "claude-" + "x" * 10_000) is None
    assert find_rule("cache_life", "claude-sonnet-4:free") is None
    assert get_value("cache_life", "llama-4", 42.0) == 42.0
    assert get_value("cache_life", "claude") == DEFAULT_CACHE_LIFE


def test_no_life_of_a_cache_is_written_beside_the_table():
    """A provider's seconds are asked of the table; what no rule knows is named as unknown."""
    allowed = {"DEFAULT_CACHE_LIFE", "_UNKNOWN_LIFE"}
    found = set()
    for path in (ROOT / "ctxkit").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not re.search(r"LIFE|LIVES|CACHE_SECONDS|TTL", text):
            continue
        for node in ast.parse(text).body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            name = node.targets[0].id
            is_life = re.search(r"LIFE|LIVES|CACHE_SECONDS|TTL", name)
            numbers = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
            if is_life and any(isinstance(n, int | float) for n in numbers):
                found.add(name)
    assert found == allowed
