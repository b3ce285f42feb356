"""What the notebooks say in words: each sentence, and how it is worked out."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from datetime import UTC, datetime
from functools import cache
from inspect import signature
from io import StringIO
from itertools import pairwise, permutations, product
from math import gamma, pi, prod, sqrt
from pathlib import Path
from statistics import NormalDist, mean, pstdev, stdev

import nbformat
import pandas as pd
import pytest
from msgspec.structs import replace
from numpy import median
from numpy.random import default_rng

import ctxkit as ck
from ctxkit.agent.memory import entry_store, session_memory
from ctxkit.agent.recorders.api_call_parsers import _gemini_usage
from ctxkit.course.lessons.appendix_and_capstone_exercises import _sweep_fuseraft
from ctxkit.course.lessons.lesson_07_sweeps import measure_losses_near_trigger as jitter
from ctxkit.course.lessons.lessons_02_03_policies_and_thrash import measure_growth_per_call
from ctxkit.course.lessons.lessons_08_09_snapshot_logs_and_replay_trust import _measure_masked_costs
from ctxkit.course.sample_replays_and_scores import (
    load_sample,
    make_rules_with_trigger,
    replay_sample,
    score_replay,
)
from ctxkit.engine import measure_pause
from ctxkit.engine.cache_model import input_cost_prediction as prediction
from ctxkit.engine.cache_model import interval_calibration
from ctxkit.experiments import compare_settings, studies
from ctxkit.formats import parse_usage
from ctxkit.metrics import (
    ITEM_FAMILIES,
    GrowthProfile,
    compaction_formulas,
    compaction_outcomes,
    drift,
    extract_items,
    find_cache_misses,
    losses,
    means_and_prediction_intervals,
    when_to_compact,
)
from ctxkit.metrics.compaction_savings_and_payback import (
    MIN_PROGRESS,
    get_replay_compactions,
    is_thrashing,
)
from ctxkit.policies import (
    ResultExcerpts,
    Rules,
    SentenceKind,
    guards,
    iter_rules_and_statements,
    memory_ranking_and_digests,
    rules_modifiers,
    triggers,
)
from ctxkit.presets import CheckpointSummariser
from ctxkit.presets.systems import tyrum_checkpoint
from ctxkit.session import Message, Text
from ctxkit.tokens import default_counter, find_rule, get_counter, live_prompt_sizes

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
PAGE, TRUST, FORECASTS, LIMITS = (
    (NOTEBOOKS.parent / "docs" / name).read_text(encoding="utf-8")
    for name in ("write-a-policy.md", "trust.md", "forecasts.md", "limits.md")
)
PRICE = ck.prices.price("claude-sonnet-4-5")
PAIR = Path(ck.__file__).parent / "course" / "pair"
CHAIN = "clear:keep_last=5 | summary:keep_tokens=8000"
WINNER = Rules(
    policy=CHAIN, trigger=triggers.Above(18_000), guards=guards.UntilCold(hard_limit=40_000), name="cheapest on billing"
)  # fmt: skip
MARGIN = Rules(policy="clear:keep_last=5", trigger=triggers.Share(0.8), name="clear at 80%")
CAREFUL = make_rules_with_trigger("summary:keep_tokens=18000", 20_000)
THREE_ROWS = (
    {"input_tokens": 900, "cache_creation_input_tokens": 2_100, "cache_read_input_tokens": 37_000, "output_tokens": 700},
    {
        "prompt_tokens": 40_000, "prompt_tokens_details": {"cached_tokens": 37_000},
        "completion_tokens": 700, "completion_tokens_details": {"reasoning_tokens": 400},
    },
    _gemini_usage({"promptTokenCount": 40_000, "cachedContentTokenCount": 37_000, "candidatesTokenCount": 300, "thoughtsTokenCount": 400}),
)  # fmt: skip
"""The same call as three providers write it down: notebook 08."""
SENTENCES = (
    "The agent reads the file again because the summary no longer names the port of the service.",
    '{"path": "etc/archive.toml", "limit": 200, "offset": 0}',
    "代理再次读取文件，因为摘要中不再包含服务的端口。",
    "Der Agent liest die Datei noch einmal, weil die Zusammenfassung den Port des Dienstes nicht mehr nennt.",
)


PAIRS = [1] * 14 + [-1] * 6 + [0] * 80
"""A hundred cases, of which 14 were right for A alone and 6 for B alone: appendix A3."""


def find_majority(right, agents=3):
    """How often most of several agents are right that err independently."""
    votes = product((True, False), repeat=agents)
    return sum(
        prod(right if vote else 1 - right for vote in v) for v in votes if 2 * sum(v) > agents
    )


def price_distance(factor, g=216, usd=0.04, read=3e-7):
    """Dollars a call of what the distance between two compactions decides, at a multiple of the best distance."""
    distance = factor * sqrt(2 * g * usd / read)
    return read * distance / 2 + g * usd / distance


def list_cents_by_kind(call):
    """The prompt of a call of `billing`, and the cents of what was read, written and replied."""
    usage = load_sample().call(call).message.usage
    kinds = (
        usage.cache_read_tokens * PRICE.cache_read,
        usage.cache_write_tokens * PRICE.cache_write,
        usage.output_tokens * PRICE.output,
    )
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return [prompt, *(round(100 * usd, 2) for usd in kinds)]


def tokens_a_letter(text):
    return get_counter("exact").count_uncached(text) / len(text)


@cache
def calibrated():
    return ck.calibrate(load_sample())


def price_subagent(prompt, later, own=15_000, calls=10, printed=30_000):
    """Dollars of giving a task to a subagent, less those of doing it in the caller's own prompt."""
    read, written = PRICE.cache_read, PRICE.cache_write
    return written * own + read * calls * (own - prompt) - read * later * printed


def price_hour_cache(name):
    """Dollars that an hour's cache would save in the pauses of a sample, and those that all its writing would add."""
    (found,) = (w for w in ck.spend(load_sample(name)).what_ifs if w.name == "cache for an hour")
    saved, added = re.findall(r"\$([\d.]+) (?:less|more)", found.sentence)[:2]
    return float(saved), float(added)


def price_hour_pause(tokens=120_000):
    """Dollars that an hour's cache saves in one pause, and those that writing the prompt once adds."""
    saved = (PRICE.cache_write - PRICE.cache_read) * tokens
    return round(saved, 2), round((PRICE.cache_write_1h - PRICE.cache_write) * tokens, 2)


def cost(rules, name="billing"):
    return score_replay(replay_sample(rules, name), loss=False)["cost_usd"]


@cache
def load_without_usage():
    """`billing`, whose replies have no usage."""
    log = (
        replace(e, usage=None) if getattr(e, "role", "") == "assistant" else e
        for e in load_sample().log
    )
    return replace(load_sample(), log=tuple(log))


@cache
def score_without_usage(rules=None):
    """The score of the session without usage, as recorded or replayed."""
    bare = load_without_usage()
    return ck.score(bare if rules is None else ck.replay(bare, rules))


def estimated_share():
    """What the estimated sizes of all prompts are of the billed ones."""
    return score_without_usage()["prompt_tokens"] / ck.score(load_sample())["prompt_tokens"]


def find_due_calls(trigger, calls=600):
    """The calls before which a prompt of 20,000 tokens, growing by 500, is compacted to 30,000."""
    size, due = 20_000, []
    for call in range(calls):
        if size > trigger:
            due.append(call)
            size = 30_000
        size += 500
    return due


def expect_luck(settings):
    """How many standard deviations the best of equal settings lies from the truth, on average."""
    normal, step = NormalDist(), 0.01
    grid = (i * step for i in range(-800, 800))
    return step * sum(z * settings * normal.pdf(z) * normal.cdf(z) ** (settings - 1) for z in grid)


def find_student_quantile(n, level=0.95):
    """Half of an interval of a mean of `n` values, in standard errors: Student's t, by adding up its density."""
    free, step = n - 1, 1e-4
    weight = gamma((free + 1) / 2) / (sqrt(free * pi) * gamma(free / 2))
    t = inside = 0.0
    while 2 * inside < level:
        t += step
        inside += step * weight * (1 + t * t / free) ** (-(free + 1) / 2)
    return t


def lost(rules, name="billing"):
    return score_replay(replay_sample(rules, name))["needed_later_loss"]


def guarded(guard):
    return CAREFUL.but(guards=(guard,))


def reads(call, path):
    return any(c.arguments.get("path") == path for c in load_sample().call(call).message.tool_calls)


@cache
def recipe():
    return json.loads((PAIR / "reader.json").read_text(encoding="utf-8"))


@cache
def real_pair():
    return pd.read_csv(PAIR / "pair.csv", index_col=0)


@cache
def other_worlds():
    return pd.read_csv(PAIR / "worlds.csv")


def spans():
    """Of what the mask was predicted to take over none, and of what it took: worlds, least, most."""
    by = {rules: rows.set_index("seed") for rules, rows in other_worlds().groupby("rules")}
    more = (
        by["mask 3"][column] / by["none"]["tokens real"] - 1
        for column in ("tokens predicted", "tokens real")
    )
    return [(len(m), round(m.min(), 2), round(m.max(), 2)) for m in more]


def seen_when_wrong():
    """The services whose files notebook 09's second run saw, at each call of the question that it got wrong."""
    masked = ck.replay(ck.read(PAIR / "mask-3.jsonl"), ck.presets.swe_agent_mask(n=3))
    return [
        {
            i.message.text.split("_")[0]
            for i in masked.sent(c.index)
            if i.message.role == "tool" and "=" in i.message.text
        }
        for c in masked.calls
        if c.turn == 10
    ]


@cache
def gridded():
    """What the notebook's six settings cost: one row a setting, one column a session."""
    windows = {"context_window": [48_000], "reserve_tokens": [20_000, 26_000, 32_000]}
    grid = ck.grid(ck.presets.fased, **windows, keep_recent_tokens=[3_000, 6_000])
    runs = ck.sweep([load_sample(), load_sample("incident")], grid, loss=False, progress=False)
    return runs.pivot(index="rules", columns="session", values="cost_usd")


def few(n):
    runs = _sweep_fuseraft()
    return runs[runs["session"].isin(runs["session"].unique()[:n])]


@cache
def four():
    policies = (
        "tail:messages=60",
        "clear:keep_last=5",
        "window:keep_tokens=12000",
        "summary:keep_tokens=8000",
    )
    return [
        score_replay(replay_sample(make_rules_with_trigger(p, 30_000)), loss=False)
        for p in policies
    ]


def most_are_tests():
    table = losses(load_sample())
    names = table[table["needed_call"].notna()].drop_duplicates("item")["item"]
    return names.str.contains("test").mean() > 0.5


def paid_by_hand():
    """Calls until the first compaction of notebook 03 has paid: by its formula, without what was
    new at the call, and as the kit says.
    """
    replay = replay_sample(make_rules_with_trigger("summary:keep_tokens=8000", 30_000))
    cut, (spot, *_) = (
        compaction_outcomes.get_compaction_outcomes(replay)[0],
        get_replay_compactions(replay),
    )
    (summary,) = cut.summaries
    usd = summary.source * PRICE.input + summary.summary * PRICE.output
    anew = (PRICE.cache_write - PRICE.cache_read) * (cut.after - 1_545)
    new = (PRICE.cache_write - PRICE.cache_read) * (cut.before - spot.previous_prompt)
    saved = PRICE.cache_read * (cut.before - cut.after)
    return (usd + anew) / saved, (usd + anew - new) / saved, cut.pays_after


def results_pay(call):
    """Calls after which taking out each result of a prompt has paid, in their order."""
    items = load_sample().sent(call)
    behind = [sum(item.tokens for item in items[i + 1 :]) for i in range(len(items))]
    return [
        compaction_formulas.reads_until_mutation_pays(item.tokens, rest)
        for item, rest in zip(items, behind, strict=True)
        if item.message.role == "tool"
    ]


def waits(at=24_000, limit=44_000):
    rules = Rules(
        policy=CHAIN, trigger=triggers.Above(at), guards=guards.UntilCold(hard_limit=limit)
    )
    return rules, Rules(policy=CHAIN, trigger=triggers.Above(at))


@cache
def shared_by_trigger():
    return [score_cleared(above_)["cost_usd"] for above_ in (26_000, 10_000, None)]


def written_share():

    ledger = ck.metrics.session_bill.bill_session(load_sample())
    return (
        ledger.sum("write") * PRICE.cache_write + ledger.sum("fresh") * PRICE.input
    ) / ledger.list_price_usd > 0.25


@cache
def windows():
    return [when_to_compact(load_sample(), context_window=n) for n in (30_000, 48_000, 200_000)]


@cache
def published():
    found = studies.table("ratios")
    return found[(found["before"] == "raw") & (found["tasks"] > 50)]


def days(session):
    return len({datetime.fromtimestamp(m.time, UTC).date() for m in session.messages if m.time})


def letters():
    """Letters a token of what the user said, which is plain English."""
    said = [m for m in load_sample().messages if m.role == "user"]
    return sum(len(m.text) for m in said) / sum(default_counter().message(m) for m in said)


def gaps():
    """The longest pause after which the cache was found, and the shortest after which it was not."""
    found = {m.call for m in find_cache_misses(load_sample()) if m is not None and m.paused}
    times = [
        (measure_pause(load_sample(), a, b), b.index in found)
        for a, b in pairwise(load_sample().calls)
    ]
    return max(t for t, gone in times if not gone), min(t for t, gone in times if gone)


def taken_roles(policy):
    roles = {m.id: m.role for m in load_sample().messages}
    return {
        roles[i]
        for e in replay_sample(make_rules_with_trigger(policy, 30_000)).edits
        for i in e.targets
    }


@cache
def score_cleared(above_):
    """The score of `billing` with results cleared above a size (None: never): many sentences speak of it."""
    rules = "none" if above_ is None else make_rules_with_trigger("clear:keep_last=20", above_)
    return score_replay(replay_sample(rules), loss=False)


def sent(above_):
    return score_cleared(above_)["prompt_tokens"]


def read_share():

    ledger = ck.metrics.session_bill.bill_session(load_sample())
    return ledger.sum("read") / sum(ledger.sum(k) for k in ("fresh", "read", "write", "output"))


def read_share_cleared(above_):
    row = score_cleared(above_)
    return row["cache_read_tokens"] / row["prompt_tokens"]


def excerpt_of(text):
    """Return head and tail of a result as `excerpts` leaves them."""
    result = Message(role="tool", id="r", tool="run", parts=(Text(text),))
    head, tail = ResultExcerpts().excerpt(result).split("\n... (truncated) ...\n")
    return head.rpartition("\n")[2], tail


def pauses():
    return [m for m in find_cache_misses(load_sample()) if m is not None and m.paused]


def later(table):
    return table.loc[table["needed_call"].notna(), "item"].str.lower()


def advises_nothing(paths):
    return not ck.advise(paths, ["none", "pi"], progress=False)["advised"].any()


def read_calls(policy, trigger=None):
    """The sizes that a replay of `billing` has read before each call, and its compactions: call, messages before and after."""
    rules = Rules(policy=policy, trigger=trigger or triggers.Always())
    replay = replay_sample(rules)
    cuts = ck.frame(replay, per="compaction")[["call", "messages_before", "messages_after"]]
    return ck.frame(replay, per="call")["cache_read_tokens"], cuts


def read_at_cuts(policy):
    """What each call after a compaction read, and whether that removed messages."""
    reads, cuts = read_calls(policy, triggers.Above(30_000))
    return reads[cuts["call"]].tolist(), (cuts["messages_after"] < cuts["messages_before"]).tolist()


def count_seen_differences(n, share, trials=4_000, x=0.5, d=1.5):
    """In which share of all trials the interval of `n` normal differences leaves out zero, on the side of the truth."""
    means = default_rng(7).normal(x, d, (trials, n)).mean(axis=1)
    return (means > NormalDist().inv_cdf((1 + share) / 2) * d / n**0.5).mean()


def count_early_stops(looks=50, trials=2_000):
    """In which share of all trials an interval of 90 % leaves out zero at one of many looks, though nothing differs."""
    sums = default_rng(5).normal(0, 1, (trials, looks)).cumsum(axis=1)
    errors = [NormalDist().inv_cdf(0.95) * n**0.5 for n in range(1, looks + 1)]
    return (abs(sums) > errors)[:, 4:].any(axis=1).mean()


def count_runs(x, d, share, seen=0.5, arms=1):
    """The sessions, or runs of each of two arms, by the formula of appendix A3."""
    normal = NormalDist()
    return arms * ((normal.inv_cdf((1 + share) / 2) + normal.inv_cdf(seen)) * d / x) ** 2


def code(number):
    path = next(NOTEBOOKS.glob(f"{number}-*.ipynb"))
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(c.source for c in cells if c.cell_type == "code")


@cache
def run_cells(number, *ids):
    """The names that cells of a notebook leave behind, run alone."""
    path = next(NOTEBOOKS.glob(f"{number}-*.ipynb"))
    names = {}
    # the first cells set how pandas prints
    with redirect_stdout(StringIO()), pd.option_context("display.float_format", None):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.id in ids:
                exec(cell.source, names)
    return names


def estimates():
    return run_cells("09", "by-kind-code", "anchor-code")


@cache
def hindsight():
    return run_cells("09", "36b59e27", "hindsight-code", "hindsight-test")


@cache
def lived(*, blind=False):
    masks = [ck.presets.swe_agent_mask(n=n).but(name=f"mask {n}") for n in (2, 20)]
    return studies.loop(["none", *masks], blind=blind)


def explained():
    return {m.kind for m in find_cache_misses(load_sample()) if m is not None}


def sources(*groups):
    return {p.source for p in ck.report(load_sample()).parts if p.group in groups}


CLAIMS = {
    "01": {
        "has worked for two days": lambda: days(load_sample()) == 2,
        "about four letters each": lambda: 3.5 < letters() < 4.5,
        "twice something cuts them down": lambda: len(load_sample().edits) == 2,
        "it may be larger than the largest one that was": lambda: (
            ck.frame(load_sample(), per="compaction")["tokens_before"].max() > ck.score(load_sample())["peak_tokens"]
        ),
        "This is all that was left to the agent of what the second compaction took": lambda: len(load_sample().edits[1].inserted) == 1,
        "and is needed at the end. It is not in the summary above": lambda: (
            "fin-import-7" in str(load_sample().call(333).message.tool_calls)
            and "fin-import-7" not in load_sample().edits[1].inserted[0].text
        ),
        "in a cache for five minutes after it was last sent": lambda: gaps()[0] < 300 < gaps()[1],
        "The first call is one: there was no prompt before it": lambda: not load_sample().call(0).message.usage.cache_read_tokens,
        "The cache had died": lambda: not load_sample().call(274).message.usage.cache_read_tokens,
        "Five more samples ship with the kit": lambda: len(ck.samples.names()) == 6,
        "costs a tenth of plain input": lambda: PRICE.cache_read / PRICE.input == pytest.approx(0.1),
        "for a quarter more than plain input": lambda: PRICE.cache_write / PRICE.input == 1.25,
        "after a pause of ten minutes": lambda: 590 < load_sample().call(274).message.time - load_sample().call(273).message.time < 620,
        "stood in a runbook that was read early": lambda: reads(23, "docs/runbook.md"),
        "the agent had to read the runbook again": lambda: reads(332, "docs/runbook.md"),
        "*Recorded* stands in the log, as the size of each prompt does": lambda: ck.report(load_sample()).prompt_source == "recorded",
        "*Derived* follows from that, as the sizes of messages do": lambda: sources("user", "tool calls", "tool results") == {"derived"},
        "*Estimated* is counted alone, as the pieces of the system prompt are": lambda: sources("system prompt") == {"estimated"},
        "48,000 tokens were set for this agent, its model could hold more": lambda: PRICE.context_limit > load_sample().context_window == 48_000,
    },
    "02": {
        "A system that never acted lost nothing, and paid for every token of every prompt": lambda: all(
            (f["needed_later_loss"], f["prompt_tokens"]) == (0, score_replay(replay_sample("none", "research"))["prompt_tokens"])
            for f in (score_replay(replay_sample(name, "research")) for name in ("codex", "pi"))
        ),
        "whose window is 48,000": lambda: load_sample().context_window == 48_000,
        "(`keep`, `drop`, `shorten`, `replace`, `summarise`)": lambda: all(
            f"| `history.{verb}(" in PAGE for verb in ("keep", "drop", "shorten", "replace", "summarise")
        ),
        "six recipes are in Write a policy": lambda: len(re.findall(r"^\*\*\d\. ", PAGE, re.MULTILINE)) == 6,
        "Clearing keeps the talk and takes only results": lambda: taken_roles("clear:keep_last=5") == {"tool"},
        "36 long web pages, read once": lambda: sum(
            c.name == "open" and "find" not in c.arguments for m in load_sample("research").messages for c in m.tool_calls
        ) == 36,
        "`claude_code` keeps 33,000 free, and is due at 15,000": lambda: min(c.before for c in compaction_outcomes.get_compaction_outcomes(replay_sample("claude_code"))) >= 15_000,
        "Some begin to act near the end of the window and have not reached it here": lambda: not (
            replay_sample("codex", "research").edits or replay_sample("pi", "research").edits
        ),
        "In a window of 200,000 none of them would act on this session: its largest prompt has 77,542": lambda: (
            not any(replay_sample(getattr(ck.presets, name)(context_window=200_000)).edits for name in ("claude_code", "codex", "gemini", "pi"))
            and score_replay(replay_sample("none"), loss=False)["peak_tokens"] == 77_542
        ),
        "All four stay below 30,000 tokens, and their dollars are within a fifth of each other": lambda: (
            max(f["peak_tokens"] for f in four()) < 30_000
            and max(f["cost_usd"] for f in four()) < 1.2 * min(f["cost_usd"] for f in four())
        ),
        "there is nothing to clear": lambda: not replay_sample(make_rules_with_trigger("clear:keep_last=5", 8_000), "chat").edits,
        "The chain costs less than either and loses no more than clearing alone": lambda: (
            cost(make_rules_with_trigger(CHAIN, 30_000)) < cost(make_rules_with_trigger("clear:keep_last=5", 30_000)) < cost(make_rules_with_trigger("summary:keep_tokens=8000", 30_000))
            and lost(make_rules_with_trigger(CHAIN, 30_000)) == lost(make_rules_with_trigger("clear:keep_last=5", 30_000))
        ),
        "*Teeth* after which there are fewer messages are summaries: there, a call reads the front alone": lambda: (
            read_at_cuts("summary:keep_tokens=8000") == ([1_540] * 3, [True] * 3)
        ),
        "*Teeth* with as many messages are cleared results: what stands before the first of them is read": lambda: (
            (of := read_at_cuts("clear:keep_last=5"))[1] == [False] * 3 and of[0] == sorted(of[0]) and of[0][1] > 5 * 1_540
        ),
        "A *plateau* is a window that slides: every few calls read the front alone": lambda: (
            (of := read_calls("window:keep_tokens=20000"))[0][of[1]["call"]].eq(1_540).mean() > 0.9
            and 2 < (343 - of[1]["call"].min()) / len(of[1]) < 3
        ),
        "`no management` runs past the window": lambda: score_replay(replay_sample("none"), loss=False)["first_call_over_window"] > 0,
    },
    "03": {
        "As recorded the session cost $3.29": lambda: f"{ck.score(load_sample())['cost_usd']:.2f}" == "3.29",
        "One system stops after ten in a row that saved less than a tenth": lambda: (
            (of := ck.presets.fuseraft().parameters)["anti_thrash_window"] == 10
            and of["anti_thrash_min_savings_ratio"] == 0.1
        ),
        "The record's own two summaries cost two cents each": lambda: all(
            round(usd, 2) == 0.02 for usd in ck.frame(load_sample(), per="compaction")["cost_usd"]
        ),
        "each compaction would need hundreds of calls, and the next one comes after a few": lambda: all(
            c.pays_after > 200 and c.interval < 10 for c in compaction_outcomes.get_compaction_outcomes(replay_sample(CAREFUL))[:3]
        ),
        "1 where each has paid, 0 where none has": lambda: [
            score_replay(r, loss=False)["paid_back_share"] for r in (load_sample(), replay_sample(CAREFUL))
        ] == [1, 0],
        "Below 60 are made, 59 judged, and none has": lambda: (
            len(of := compaction_outcomes.get_compaction_outcomes(replay_sample(CAREFUL))) == 60
            and [c.interval is None for c in of] == [False] * 59 + [True]
            and score_replay(replay_sample(CAREFUL), loss=False)["not_paid_back_n"] == 59
        ),
        "A table says *thrashes* where most of them were not paid back, or where three in a row saved less than a tenth": lambda: (
            [is_thrashing(*each) for each in ((3, []), (2, [True, False]), (0, [True, True, False]))] == [True, False, True]
            and MIN_PROGRESS == 0.1
        ),
        "it takes off what was new at this call and would have been written anyway": lambda: (
            [f"{n:.1f}" for n in paid_by_hand()] == ["23.5", "22.6", "22.6"]
        ),
        "fill the 2,000 tokens in between at once": lambda: 2_000 / measure_growth_per_call() < 10,
        "the context grows without an end, past the window": lambda: (
            score_replay(replay_sample(guarded(guards.AntiThrash(window=3))), loss=False)["peak_tokens"] > 48_000
        ),
        "then the summary is paid for nothing (a replay leaves that out)": lambda: (
            cost(CAREFUL.but(guards=(guards.MinProgress(share=0.9),))) == cost("none")
        ),
        "*Until cold* is the cheapest": lambda: cost(guarded(guards.UntilCold(hard_limit=40_000))) < min(
            cost(guarded(g)) for g in (guards.MinGrowthSinceCompaction(tokens=4_000), guards.GraceAfterCompaction(turns=1))
        ),
    },
    "04": {
        "Such an agent answered sixty questions": lambda: len(studies.closed_loop.make_port_lookup_task().services_by_question) == 60,
        "Never compacted it read each of the 24 files once": lambda: (
            len(studies.closed_loop.make_port_lookup_task().files) == 24 and lived()["rereads_n"]["none"] == 0
        ),
        "As predicted, `mask 2` is the cheapest of all; as really paid, `none` is": lambda: (
            (lived()["usd_predicted"].idxmin(), lived()["usd_real"].idxmin()) == ("mask 2", "none")
        ),
        "`mask 20` is dear even as predicted": lambda: (
            (usd := lived()["usd_predicted"].tolist())[1] < usd[0] < usd[2]
        ),
    },
    "05": {
        "above 26,000 tokens: $2.96. The same above 10,000 tokens clears much more often and sends a fifth fewer tokens": lambda: (
            round(shared_by_trigger()[0], 2) == 2.96 and 0.17 < 1 - sent(10_000) / sent(26_000) < 0.23
        ),
        "what it finds there costs a tenth, and writing it costs a quarter more": lambda: (
            PRICE.cache_write == 1.25 * PRICE.input == pytest.approx(12.5 * PRICE.cache_read)
        ),
        "Tokens fall all the way; dollars turn round": lambda: (
            sent(26_000) > sent(22_000) > sent(18_000) > sent(14_000) > sent(10_000) and shared_by_trigger()[0] < shared_by_trigger()[2]
        ),
        "Nearly all tokens were read from the cache": lambda: 0.95 < read_share() < 1,
        "`none` reads 97 % of its tokens, *above 26,000* 96 %, and `none` costs nearly twice as much": lambda: (
            [round(read_share_cleared(above), 2) for above in (None, 26_000)] == [0.97, 0.96]
            and 1.8 < shared_by_trigger()[2] / shared_by_trigger()[0] < 2
        ),
        "One pause, 120,000 tokens written once: 41 cents against 27, it pays": lambda: price_hour_pause() == (0.41, 0.27),
        "`billing` would save 0.24 dollars and pay 0.39, `inbox` save 1.12 and pay 0.74": lambda: (
            [price_hour_cache(name) for name in ("billing", "inbox")] == [(0.24, 0.39), (1.12, 0.74)]
        ),
        "`(3.75 - 0.30) / 0.30 = 11.5` times": lambda: (PRICE.cache_write - PRICE.cache_read) / PRICE.cache_read == pytest.approx(11.5),
        "all of `expected` would have been read, had the cache lived": lambda: (
            [m.read_tokens for m in pauses()] == [0] * len(pauses()) and min(m.expected for m in pauses()) > 0
        ),
        "a pause is also the moment at which a piece of work is done": lambda: (
            sum(load_sample().call(m.call).turn != load_sample().call(m.call - 1).turn for m in pauses()) >= len(pauses()) - 1
        ),
        "like the formula of notebook 03, a cache that still holds system and tools": lambda: (
            (of := windows()[1]).floor > of.context_floor.fixed == 1_545
            and of.reset_usd
            == pytest.approx(
                GrowthProfile(load_sample()).summary * (PRICE.input + PRICE.output)
                + PRICE.input * (of.best - of.floor)
                + (PRICE.cache_write - PRICE.cache_read) * (of.floor - 1_545)
            )
        ),
        "it cuts before three of four calls": lambda: round(len(replay_sample(make_rules_with_trigger("clear:keep_last=20", 10_000)).edits) / 343, 2) == 0.77,
        "all that both prompts share was read (1,545 tokens as worked out, 1,546 as billed)": lambda: [
            (m.expected, m.read_tokens) for m in find_cache_misses(load_sample()) if m is not None and m.kind == "compaction"
        ] == [(1_545, 1_546)] * 2,
        "`best` is the cheapest that puts little more at stake than compacting at the full window would": lambda: all(
            found.loss <= w.max_loss for w in windows() for found in w.trigger_costs if found.name == "best"
        ),
        "The lowest trigger costs more than no management at all": lambda: shared_by_trigger()[1] > shared_by_trigger()[2],
        "A result near the end is nearly free to take, one near the beginning hardly ever pays": lambda: (
            (calls := results_pay(150))[-1] < 10 and calls[0] > len(load_sample().calls) - 150
        ),
        "before a pause that is read from the cache, after it at ten times that price": lambda: PRICE.input / PRICE.cache_read == pytest.approx(10),
        "more than a quarter of the money went for the few that were not": written_share,
        "Dollars alone say the same in any window": lambda: len({w.cheapest for w in windows()}) == 1,
        "In 30,000 tokens most goes whatever one does, and dollars decide": lambda: (
            windows()[0].max_loss > 0.75 and windows()[0].best == windows()[0].cheapest
        ),
        "this session never grows to 80,494": lambda: (
            score_replay(replay_sample("none"), loss=False)["peak_tokens"] < windows()[2].best == 80_494
        ),
        "it costs more. But it loses far less": lambda: (
            cost(waits()[0]) - cost(waits()[1]) > 0 and lost(waits()[0]) < lost(waits()[1]) / 5
        ),
    },
    "06": {
        "of the next 24 calls of tools after a compaction, the share that repeats one which it took (here 54 %)": lambda: (
            compaction_outcomes.REREAD_WINDOW == 24 and round(ck.score(load_sample())["reread_rate"], 2) == 0.54
        ),
        "1.02 of 3.29 dollars, the runbook a seventh of a cent": lambda: (
            f"{sum(f.usd for f in ck.spend(load_sample()).repeated_results):.2f}" == "1.02"
            and f"{ck.spend(load_sample()).cost_usd:.2f}" == "3.29"
            and round(0.01 / next(f.usd for f in ck.spend(load_sample()).repeated_results if "runbook" in f.name)) == 7
        ),
        "a path, an id, a name, a number, a command, an error, a decision, a rule of the user": lambda: (
            set(ITEM_FAMILIES) > {"path", "id", "name", "number", "command", "error", "decision", "constraint"}
        ),
        "And `none`, which loses nothing, does not fit the window": lambda: (
            lost("none") == 0 and score_replay(replay_sample("none"), loss=False)["peak_tokens"] > 48_000
        ),
        "each large result goes into a file when it arrives, and a stub with its path stands in the prompt": lambda: any(
            "path='.ctxkit/artifacts" in i.message.text
            for i in replay_sample(Rules(pruning="offload:threshold=1000", name="offload")).sent(-1)
        ),
        'A result that is old already can go the same way (`policy="offload:threshold=1000"` with a trigger)': lambda: (
            {e.kind for e in replay_sample(make_rules_with_trigger("offload:threshold=1000", 30_000)).edits} == {"shortened"}
            and score_replay(replay_sample(make_rules_with_trigger("offload:threshold=1000", 30_000)))["lost"] == 0
        ),
        "Fifteen facts matter for the last day's work": lambda: len(ck.course.facts_kept(load_sample())) == 15,
        "None of the three was settled": lambda: set(later(losses(load_sample()))) >= {
            "fin-import-7", "docs/runbook.md", "inv-2026-118842"
        },
        "Much of what is lost is never missed": lambda: (
            losses(load_sample()).groupby("item")["needed_call"].count().eq(0).mean() > 0.8
        ),
        "among all items that the record used again, each counted once": lambda: (
            (row := ck.score(load_sample()))["needed_lost_n"] == len(set(later(losses(load_sample())))) < row["reused_items_n"]
        ),
        "It holds back 16,384 tokens and keeps 20,000: in 48,000 little is left between": lambda: (
            (of := ck.presets.pi().parameters)["reserve_tokens"] == 16_384 and of["keep_recent_tokens"] == 20_000
            and load_sample().context_window == 48_000
        ),
        "9 % of what was needed later was out of sight": lambda: round(lost("pi"), 2) == 0.09,
        "These stood in the first summary and not in the second: the queue `fin-import-7`, the runbook that names it, and the invoice `INV-2026-118842`": lambda: (
            {item for _, item in extract_items(load_sample().edits[0].inserted[0]) - extract_items(load_sample().edits[1].inserted[0])}
            == {"fin-import-7", "docs/runbook.md", "inv-2026-118842"}
        ),
        "Most of the others are names of tests": most_are_tests,
        "`pi` cuts 23 times here": lambda: len(replay_sample("pi").edits) == 23,
        "no compaction took the message that named it": lambda: not any(
            m.id in e.targets for m in load_sample().messages if "X-Bill-Trace" in m.text for e in load_sample().edits
        ),
    },
    "07": {
        "a difference of a few points of loss says nothing on one session, and one of fifty does": lambda: (
            3 < 100 * stdev(jitter()) < 5 and 100 * (max(jitter()) - min(jitter())) < 50
        ),
        "Dollars are steadier": lambda: stdev(jitter()) / mean(jitter()) > 3 * 0.016,
        "Six sessions of six kinds": lambda: len(ck.samples.paths()) == 6,
        "Eight settings on each": lambda: 3 * 2 + 2 == 8 and code("07").count("for share in (0.2") == 2,
        "`chat` does not care": lambda: len({
            cost(Rules(policy=f"clear:keep_last={k}", trigger=triggers.Share(x)), "chat") for x, k in ((0.2, 5), (0.2, 20), (0.5, 5))
        }) == 1,
        "It advises nothing on fewer than five sessions": lambda: advises_nothing(ck.samples.paths()[:4]),
        "chains lose little (02), distance cures thrash (03)": lambda: (
            lost(make_rules_with_trigger(CHAIN, 30_000)) < 0.06 and not score_replay(replay_sample(make_rules_with_trigger("summary:keep_tokens=8000", 30_000)), loss=False)["is_thrashing"]
        ),
        "55 % of what is needed later out of sight": lambda: round(lost(make_rules_with_trigger("summary:keep_tokens=8000", 30_000)), 2) == 0.55,
        "`research` pays six times as much for one setting as for another": lambda: 5.5 < (
            cost(Rules(policy="clear:keep_last=20", trigger=triggers.Share(0.2)), "research")
            / cost(Rules(policy="clear:keep_last=5", trigger=triggers.Share(0.2)), "research")
        ) < 6.5,
        "`inbox` carries 60,000 tokens that no rule can take away": lambda: (
            ck.report(load_sample("inbox")).groups()["not in the log"] == 60_000
        ),
        "On `billing` it loses next to nothing; on `migration` and `research` more than half": lambda: (
            lost(WINNER) < 0.02 and all(lost(WINNER, name) > 0.5 for name in ("migration", "research"))
        ),
        "18,000 tokens are more than a third of a window of 48,000 and less than a tenth of 200,000": lambda: (
            18_000 / 48_000 > 1 / 3 and 18_000 / 200_000 < 0.1
        ),
        "On `inbox` they are less than its fixed part, so the rules are due at every call": lambda: (
            ck.frame(ck.replay(load_sample("inbox"), WINNER), per="call")["prompt_tokens"].min() > 60_000 > 18_000
        ),
        "The winner drops facts on sessions of its own kind": lambda: min(
            sum(ck.course.facts_kept(ck.replay(ck.course.make_session(seed), WINNER)).values()) for seed in (3, 4)
        ) < 15,
        "the setting with a margin keeps them all, and its margin costs something": lambda: all(
            all(ck.course.facts_kept(ck.replay(made, MARGIN)).values())
            and ck.score(ck.replay(made, MARGIN))["cost_usd"] > ck.score(ck.replay(made, WINNER))["cost_usd"]
            for made in map(ck.course.make_session, range(1, 5))
        ),
        "waiting for the cold loses less (05)": lambda: lost(waits()[0]) < lost(waits()[1]),
    },
    "08": {
        "Whoever adds *input* and *cached* counts 77,000 at the others": lambda: (
            [(u.input_tokens, u.cache_write_tokens, u.cache_read_tokens, u.output_tokens) for u in map(parse_usage, THREE_ROWS)]
            == [(900, 2_100, 37_000, 700), (3_000, None, 37_000, 700), (3_000, None, 37_000, 700)]
            and 40_000 + 37_000 == 77_000
        ),
        "they lie 12.5 times apart": lambda: round(PRICE.cache_write / PRICE.cache_read, 1) == 12.5 and PRICE.input < PRICE.cache_write,
        "343 calls, two compactions, and 45 % of what was needed later out of sight": lambda: (
            [(of["calls_n"], of["compactions_n"], round(of["needed_later_loss"], 2)) for of in (score_without_usage(), ck.score(load_sample()))]
            == [(343, 2, 0.45)] * 2
        ),
        "The last prompt has 14,777 tokens then and not 19,536, and all prompts together are 24 % too low": lambda: (
            round(estimated_share(), 2) == 0.76
            and "14,777 tokens (estimated)" in str(ck.report(load_without_usage()))
            and "19,536 tokens (recorded)" in str(ck.report(load_sample()))
        ),
        "**Dollars** are missing then, in reports, scores and replays": lambda: all(
            pd.isna(score_without_usage(rules)["cost_usd"]) for rules in (None, "none", "pi")
        ),
        "compacts 4 times and not 23, and loses 2 % and not 9 %": lambda: (
            [(of["compactions_n"], round(of["needed_later_loss"], 2)) for of in (score_without_usage("pi"), score_replay(replay_sample("pi")))]
            == [(4, 0.02), (23, 0.09)]
        ),
        "(20 % or more, limits.md)": lambda: "with an error of 20 % or more for tokens of another vendor" in LIMITS,
    },
    "10": {
        "at 2 % that is 33 % with twenty and 87 % with a hundred": lambda: [round(1 - 0.98**n, 2) for n in (20, 100)] == [0.33, 0.87],
        "If each month one in twenty becomes wrong, 54 % still hold after a year (`0.95^12`)": lambda: round((1 - 1 / 20) ** 12, 2) == 0.54,
        "at 3 cents a look and 1 dollar an error from 3 % on, here before a month is over": lambda: 0.03 / 1 == 0.03 < 1 / 20,
        "as much as five calls that read 10,000 tokens each from the cache": lambda: 5 * 10_000 * PRICE.cache_read == pytest.approx(0.015),
        "With `--memory on` the prompt gets at most 8,000 characters of notes": lambda: memory_ranking_and_digests.MAX_BLOCK_CHARS == 8_000,
        "12 notes and 2,400 characters, with less for each kind (6 facts and 800 characters)": lambda: (
            ((of := memory_ranking_and_digests.MemoryDigestLimits()).items, of.chars, of.kinds["fact"]) == (12, 2_400, (6, 800))
        ),
        "**The store** holds ten times that": lambda: (
            (of := memory_ranking_and_digests.MemoryDigestLimits())
            and memory_ranking_and_digests.MemoryDigestLimits(
                items=10 * of.items,
                chars=10 * of.chars,
                kinds={kind: (10 * n, 10 * chars) for kind, (n, chars) in of.kinds.items()},
            )
            == entry_store.STORE_BUDGETS
        ),
        "episodes first, then notes, procedures, facts": lambda: entry_store._REMOVAL_ORDER == ("episode", "note", "procedure", "fact"),
        "by patterns, 20 at most": lambda: session_memory.MAX_PROMOTED == 20,
    },
    "09": {
        "make the rules anew from what is left, and replay that. All prompts up to there must stay the same": lambda: all(
            (of := hindsight())["send_first"](of["early"], lambda log, p=policy: p)[0]
            == of["send_first"](of["billing"], lambda log, p=policy: p)[0]
            for policy in ("tail:messages=60", "summary:keep_tokens=8000", CHAIN)
        ),
        "hindsight is a bound: so little could be lost": lambda: (
            (of := hindsight())["send_first"](of["billing"], of["with_hindsight"])[1] == 0 < of["loss"]
            and of["prompts"] == of["without_future"]
            and of["send_first"](of["early"], of["with_hindsight"])[0] != of["send_first"](of["billing"], of["with_hindsight"])[0]
        ),
        "With a prompt of 100,000 tokens and 8,000 for the reply it is 50 cents at the prices of notebook 01, though a prompt that is read costs 3": lambda: (
            [round(100 * usd, 1) for usd in (100_000 * PRICE.cache_write + 8_000 * PRICE.output, 100_000 * PRICE.cache_read)] == [49.5, 3]
        ),
        "At twice the input's price above 200,000 tokens, a prompt of 201,000 costs as much as 402,000 tokens at the lower price": lambda: (
            (step := find_rule("price_tier", "gemini-3.1-pro").value)["above"] == 200_000 and step["input"] * 201_000 == 402_000
        ),
        "A run of 1.00 dollar that is right in 80 of 100 cases costs 1.25 for each right result; one of 0.70 that is right in 50 costs 1.40": lambda: (
            pytest.approx([1.25, 1.4]) == [1 / 0.8, 0.7 / 0.5]
        ),
        "three of them, each known to ± 10 %, give a result known to ± 17 %": lambda: round(10 * 3**0.5) == 17,
        "costs 0.5 x 1.3 x 1.6, 4 % *more*": lambda: pytest.approx(1.04) == 0.5 * 1.3 * 1.6,
        "With the picture the client believes half more than is true, and compacts far too early. Take the picture away, and it believes a quarter too little": lambda: (
            [round(row["client"] / row["true"], 2) for _, row in estimates()["sizes"].loc[["all", "without the picture"]].iterrows()] == [1.55, 0.74]
        ),
        "Its error is that of the new part alone": lambda: (
            (of := estimates())["billed"] + of["new"] - of["truth"] == pytest.approx(24_000 / 4 - 24_000 / 3)
        ),
        "The factor may be nearer by luck, and is far off as soon as the mixture changes": lambda: (
            (of := estimates())
            and abs((of["counted"] + of["new"]) * of["billed"] / of["counted"] - of["truth"]) < of["truth"] - of["billed"] - of["new"]
            and (of["counted"] + of["new"]) * of["whole"]["true"] / of["whole"]["client"] < of["truth"] / 2
        ),
        "A quarter of the characters (`chars/4`) is 29 % too low here, 40 % for calls of tools, which are names and JSON, and 19 % for what the user wrote": lambda: [
            round(calibrated().error("chars/4", kind), 2) for kind in ("all content", "tool calls", "user input")
        ] == [-0.29, -0.40, -0.19],
        "or, as for most of these, *never*": lambda: (
            (of := calibrated().triggers).loc[of["threshold"] == of["threshold"].max(), "estimated_call"].isna().mean() > 0.5
        ),
        "a letter of JSON is twice as many tokens as one of an English sentence, a sign of Chinese three times as many, a letter of German no more": lambda: (
            [round(tokens_a_letter(text) / tokens_a_letter(SENTENCES[0])) for text in SENTENCES[1:]] == [2, 3, 1]
        ),
        "begins anew after a compaction or a change of model or tools": lambda: (
            "Bills before a compaction or a change of model or tools are not used" in " ".join(
                Path(live_prompt_sizes.__file__).read_text(encoding="utf-8").replace("#", "").split()
            )
        ),
        "a language model of some 300,000 weights, trained from nothing for one task (`pair/train.py`: five minutes of a processor)": lambda: (
            round(recipe()["parameters"], -5) == 300_000 and round(recipe()["minutes"]) == 5
        ),
        "asked twelve questions about numbers that it had never met": lambda: (
            list(real_pair()["right"]) == ["12 of 12", "11 of 12"]
        ),
        "predicted to save 3 % of the tokens, cost 39 % more of them: five files were read again": lambda: (
            [round(real_pair()[c]["mask 3"] / real_pair()["tokens real"]["none"] - 1, 2) for c in ("tokens predicted", "tokens real")]
            == [-0.03, 0.39]
            and real_pair()["read again"]["mask 3"] == 5
        ),
        "In twenty other worlds (`pair/worlds.csv`) the mask was predicted to save 4 to 7 % and cost 22 to 99 % more": lambda: (
            spans() == [(20, -0.07, -0.04), (20, 0.22, 0.99)]
        ),
        "of 240 answers 236 were right without it, 214 with it": lambda: (
            other_worlds().groupby("rules")["right"].agg(lambda r: r.str.split().str[0].astype(int).sum()).to_dict()
            == {"none": 236, "mask 3": 214}
        ),
        "with everything in sight 4 of the 240 answers above were wrong": lambda: (
            (of := other_worlds().query("rules == 'none'"))["read again"].sum() == 0
            and sum(12 - int(r.split()[0]) for r in of["right"]) == 4
        ),
        "too cheap: by 218 % under `mask 2`": lambda: round(lived()["usd_error"]["mask 2"], 2) == 2.18,
        "0.87 to 2.21 times the turns in published runs": lambda: (
            [round(f(published()["turns"]), 2) for f in (min, max)] == [0.87, 2.21]
        ),
        "second copies cost 1.02 of the record's 3.29 dollars": lambda: (
            f"{sum(f.usd for f in ck.spend(load_sample()).repeated_results):.2f}" == "1.02" and f"{ck.spend(load_sample()).cost_usd:.2f}" == "3.29"
        ),
        "10 cents and not 2, where the old prompt is in the cache": lambda: (
            [round(usd, 2) for usd in ck.frame(load_sample(), per="compaction")["cost_usd"]] == [0.02, 0.02]
            and round((of := get_replay_compactions(replay_sample(make_rules_with_trigger("summary:keep_tokens=8000", 30_000)))[0].summaries[0]).source * PRICE.input + of.summary * PRICE.output, 2) == 0.1
        ),
        "No prompt is long enough for a cache": lambda: all(
            c.message.usage.prompt_tokens < 1_024 for name in ("none", "mask-3") for c in ck.read(PAIR / f"{name}.jsonl").calls
        ),
        "Its first step is right: `kiosk` is in sight and `cache` is not. But what it read pushed `kiosk` out.": lambda: (
            seen_when_wrong() == [{"kiosk", "router", "export"}, {"router", "export", "cache"}, {"export", "cache"}]
        ),
        "Without management it pays 42 cents": lambda: round(lived()["usd_real"]["none"], 2) == 0.42,
        "is predicted to cost 45 cents": lambda: round(_measure_masked_costs()[0], 2) == 0.45,
        "shown their last five observations": lambda: studies.mask_token_errors_and_visibility_exams.RECORDED_WINDOW == 5,
        "it is smallest at the window that was used, though windows next to it are hardly worse": lambda: (
            (of := studies.mask_token_errors_and_visibility_exams.summarise_errors_by_window(studies.table("masks"), "o200k").set_index("window")["median"]).idxmin() == 5
            and of[[4, 6]].max() < of[5] + 0.01
        ),
        "with three models, two of them also thinking": lambda: (
            sorted(studies.table("ratios")["model"].unique())
            == ["gemini-2.5-flash", "gemini-2.5-flash, thinking", "qwen3-32b", "qwen3-32b, thinking", "qwen3-coder-480b"]
        ),
        "neither 15 % more, nor always more": lambda: published()["turns"].min() < 1 < published()["turns"].median() < 1.15,
        "run twice over the same 50 tasks": lambda: set(studies.table("repeats")["tasks"]) == {50},
        "no single run can show a policy to be better": lambda: (
            studies.table("floors").set_index(["tasks", "figure"]).loc[(1, "usd"), "floor"] > 1
        ),
        "half of all questions go far back": lambda: signature(studies.closed_loop.make_port_lookup_task).parameters["near"].default == 0.5,
        "models other than Gemini, Qwen and one made for a single task": lambda: (
            {name.split("-")[0].rstrip("3") for name in studies.table("ratios")["model"]} == {"gemini", "qwen"}
        ),
        "trusted to a few per cent, where the steps are known": lambda: (
            median(abs(studies.mask_token_errors_and_visibility_exams.measure_mask_prediction_errors(studies.table("masks"), 5, "o200k"))) < 0.05
        ),
        "The mask that suits SWE-agent doubles the turns of OpenHands": lambda: (
            (of := published()[published()["setting"] == "M=10"].groupby("scaffold")["turns"].max())["openhands"] > 2
            and of["sweagent"] < 1.2
        ),
        "In dollars, management pays nearly everywhere": lambda: (published()["usd"] < 0.95).mean() > 0.9,
        "most published runs above took no more than a fifth more turns": lambda: (published()["turns"] <= 1.2).mean() > 0.8,
        "over 50 it is a fifth of the dollars": lambda: (
            studies.table("floors").set_index(["tasks", "figure"]).loc[(50, "usd"), "floor"] == pytest.approx(0.2, abs=0.01)
        ),
        "Predicted and real are equal, token by token and to the last cent": lambda: (
            lived(blind=True)["tokens_predicted"].tolist() == lived(blind=True)["tokens_real"].tolist()
            and lived(blind=True)["usd_error"].abs().max() < 1e-9
        ),
        "With `d` = 33 cents, 30 cents take 4 of each at an interval of 80 %, and 11 to be seen in four of five cases": lambda: (
            [round(count_runs(30, 33, 0.8, seen, arms=2)) for seen in (0.5, 0.8)] == [4, 11]
        ),
        "The dollars of a replay mislead here; what it says of *loss* does not": lambda: (
            lived()["usd_predicted"].idxmin() != lived()["usd_real"].idxmin()
            and lived()["out_of_sight"].rank().tolist() == lived()["rereads_n"].rank().tolist()
        ),
    },
    "a1": {
        "Suppose 2.00, 0.20 and 4.50 dollars a million: for eight hours from 22 calls on, for one hour from 4": lambda: (
            [next(n for n in range(99) if 2.00 + 0.20 * n + 4.50 * hours < 2.00 * n) for hours in (8, 1)] == [22, 4]
        ),
        "11.5 here, 9 where writing costs no more than plain input, 1 where in addition a read costs half of it": lambda: (
            [(w - r) / r for w, r in ((3.75, 0.3), (3, 0.3), (3, 1.5))] == pytest.approx([11.5, 9, 1])
        ),
        "With a distance `h - s` that is 30 % too small this part of the bill is 6 % dearer, at 30 % too large 3 %, at twice as large 25 %": lambda: (
            [round(price_distance(x) / price_distance(1) - 1, 2) for x in (0.7, 1.3, 2)] == [0.06, 0.03, 0.25]
        ),
        "The best distance is then less than a third": lambda: sqrt(PRICE.cache_read / PRICE.input) < 1 / 3,
        "If one call in 20 is the last, 20 are expected, however long the session has been": lambda: (
            sum(0.95**call for call in range(2_000)) == pytest.approx(20)
        ),
        "The agent's own model reads them from the cache: 6 cents in all. A model at 1 and 5 dollars a million: 11 cents.": lambda: (
            (reply := 2_000 * PRICE.output) and [round(100 * x) for x in (100_000 * PRICE.cache_read + reply, 0.1 + 0.01)] == [6, 11]
        ),
        "After a pause, when the own model has to take them as plain input, too, it is 33 against 11 cents": lambda: (
            round(100 * (100_000 * PRICE.input + 2_000 * PRICE.output)) == 33
        ),
        "| 174 | 39,313 | 1.18 | 0.04 | 0.03 | | 175, the first after it | 11,651 | 0.05 | 3.79 | 0.06 | | 176 | 11,707 | 0.35 | 0.02 | 0.08 |": lambda: (
            [list_cents_by_kind(call) for call in (174, 175, 176)]
            == [[39_313, 1.18, 0.04, 0.03], [11_651, 0.05, 3.79, 0.06], [11_707, 0.35, 0.02, 0.08]]
        ),
        "the call that wrote the summary is another 2.1": lambda: round(100 * ck.frame(load_sample(), per="compaction")["cost_usd"][0], 1) == 2.1,
        "The shortest prompt is the dearest call, three times as dear as the one before": lambda: (
            [sum(list_cents_by_kind(call)[1:]) / sum(list_cents_by_kind(174)[1:]) for call in (175, 176)] == pytest.approx([3.12, 0.36], abs=0.01)
        ),
        "A call of a tool and its result are a block each, so one reply with eleven calls adds more than that": lambda: (
            2 * 10 <= find_rule("look_back", "claude-sonnet-4-5").value < 2 * 11
        ),
        "From a mark on, Anthropic looks back over 20 blocks of content": lambda: find_rule("look_back", "claude-sonnet-4-5").value == 20,
        "costs `r / (w - r)` of the miss that it spares, 1 / 11.5: from twelve in one pause on (48 minutes) let it die": lambda: (
            (PRICE.cache_write - PRICE.cache_read) / PRICE.cache_read == pytest.approx(11.5) and 4 * 12 == 48
        ),
        "The hour's premium is worth `(h - w) / r`, 7.5 such calls": lambda: (
            (PRICE.cache_write_1h - PRICE.cache_write) / PRICE.cache_read == pytest.approx(7.5)
        ),
        "`k` calls pay where `q > k / 11.5`; the hour, for one pause, where `q > (h - w) / (w - r)`, 65 %": lambda: (
            round((PRICE.cache_write_1h - PRICE.cache_write) / (PRICE.cache_write - PRICE.cache_read), 2) == 0.65
        ),
        "By the formula, `x > 11.5 S / (calls until the next clearing)`": lambda: (
            (PRICE.cache_write - PRICE.cache_read) / PRICE.cache_read == pytest.approx(11.5)
        ),
        "At 50,000 tokens and a result of 3,000 that is 2.6 cents": lambda: round(100 * (50_000 * PRICE.cache_read + 3_000 * PRICE.cache_write), 1) == 2.6,
        "(Without a cache the same look costs 16 cents": lambda: round(100 * 53_000 * PRICE.input) == 16,
        "With a window of 128,000, a reserve of 8,000 and results of up to 20,000 tokens the trigger is 100,000 at most; at 110,000 a result may have 10,000": lambda: (
            [128_000 - 8_000 - n for n in (20_000, 110_000)] == [100_000, 10_000]
        ),
        "(`clear_at_least` of `anthropic_clear_tools`)": lambda: {"clear_at_least", "exclude_tools"} <= set(ck.presets.anthropic_clear_tools().parameters),
        "of their 80 % interval": lambda: interval_calibration.COVERAGE == 0.8,
        "The record lies in the 80 % interval where `low` <= 0 <= `high`": lambda: (
            (of := prediction.predict_input_cost(load_sample())).low is of.high is None
            and "to calibrate it" in of.why
        ),
        "In others two fifths of what is missed has no such cause": lambda: "| `unexplained` | no rule holds |" in TRUST
        and 0.35 < float(re.search(r"`unexplained` \| no rule holds \|[^|]*\|[^|]*\| ([\d.]+)%", TRUST)[1]) / 100 < 0.45,
        "pauses and compactions explain every miss": lambda: explained() == {"cold_start", "ttl_expiry", "compaction"},
        "1,024 tokens at OpenAI and at Claude Sonnet 4.5, 512 to 4,096 at other models of Anthropic": lambda: (
            [find_rule("minimum_prefix", model).value for model in ("gpt-5.6", "claude-sonnet-4-5", "claude-opus-5", "claude-opus-4-5")]
            == [1_024, 1_024, 512, 4_096]
        ),
        "(128 tokens at OpenAI before GPT-5.5, 512 or 1,024 since; Anthropic goes by the token)": lambda: (
            [find_rule("block_tokens", model).value for model in ("gpt-5.4", "gpt-5.5", "gpt-5.6", "claude-sonnet-4-5")]
            == [128, 512, 1_024, 1]
        ),
        "that a request sets, four at most": lambda: find_rule("breakpoints", "claude-sonnet-4-5").value == 4,
        "300 calls send 28 million tokens and 600 calls 102 million": lambda: (
            [round(sum(20_000 + 500 * i for i in range(n)) / 1e6) for n in (300, 600)] == [28, 102]
        ),
        "Take 20,000 tokens at the start, 500 a call, a window of 200,000, and 30,000 after a compaction. At 80 % (160,000) the first comes"
        " before call 281 and the next 261 calls later; at 50 % (100,000) before call 161, and 141 later.": lambda: (
            [(due[0], due[1] - due[0]) for due in map(find_due_calls, (0.8 * 200_000, 0.5 * 200_000))] == [(281, 261), (161, 141)]
        ),
        "So 300 calls have one compaction in either case, and 600 calls have two or four": lambda: (
            [len(find_due_calls(t, n)) for n in (300, 600) for t in (160_000, 100_000)] == [1, 1, 2, 4]
        ),
        "moves the distance by 1.4": lambda: round(2**0.5, 1) == 1.4,
        "(150,000 tokens where none is given, 50,000 at least)": lambda: [
            find_rule(name, "claude-opus-5-5").value for name in ("compaction_trigger", "compaction_trigger_min")
        ] == [150_000, 50_000],
    },
    "11": {
        "three keep 78 % (`0.92^3`), five 66 % and ten 43 %": lambda: [round(0.92**n, 2) for n in (3, 5, 10)] == [0.78, 0.66, 0.43],
        "12 with four, 56 with eight": lambda: [len(list(permutations(range(n), 2))) for n in (4, 8)] == [12, 56],
        "Through one lead they are `2 (n - 1)`, 6 and 14": lambda: (
            [sum(0 in each for each in permutations(range(n), 2)) for n in (4, 8)] == [6, 14]
        ),
        "Three agents that are each right in 80 % of the cases are right by majority in 90 %": lambda: round(find_majority(0.8), 2) == 0.9,
        "and 80 % are left": lambda: find_majority(1) == 1 and find_majority(0) == 0,
        "in the midst of a long session (`P` = 40,000, `N` = 20) it saves 20 cents": lambda: round(price_subagent(40_000, 20), 2) == -0.20,
        "As the first and only step (`P` = 5,000, `N` = 0) it is 9 cents dearer": lambda: round(price_subagent(5_000, 0), 2) == 0.09,
        "the caller's prompt is written again: 14 cents for 40,000 tokens": lambda: (
            round((PRICE.cache_write - PRICE.cache_read) * 40_000, 2) == 0.14
        ),
        "At 3.75 and 0.30 dollars a million": lambda: (
            [round(p * 1e6, 2) for p in (PRICE.cache_write, PRICE.cache_read)] == [3.75, 0.30]
        ),
    },
    "a2": {
        "`(agreement - chance) / (1 - chance)`: 0.5 for 91 %": lambda: pytest.approx(0.5) == (0.91 - 0.82) / (1 - 0.82),
        "70 % right, between 40 % and 90 %, are three fifths of what could be kept": lambda: pytest.approx(3 / 5) == (0.7 - 0.4) / (0.9 - 0.4),
        "*never* binds, *you may* does not": lambda: [
            rule.kind for text in ("Never touch the schema.", "You may change it now.") for rule in iter_rules_and_statements(Message(role="user", id="u", parts=(Text(text),)))
        ] == [SentenceKind.BINDS, SentenceKind.STATES],
        "1,000 tokens more are 1.5 cents to write, and 3 cents to read in a hundred later calls": lambda: (
            [100 * 1_000 * PRICE.output, 100 * 100 * 1_000 * PRICE.cache_read] == pytest.approx([1.5, 3])
        ),
        "That is less than two second looks of 2.6 cents each": lambda: 1.5 + 3 < 2 * 2.6,
        "A setting that saves 20 cents a session and makes one result in 50 wrong is dear as soon as a wrong result costs more than 10 dollars": lambda: (
            pytest.approx(0.2) == 10 / 50
        ),
        "are read for `r m n (k + 1) / 2` dollars (eight of 1,500 in 160 calls: 32 cents)": lambda: (
            sum(1_500 * k * 20 for k in range(1, 9)) * PRICE.cache_read == pytest.approx(1_500 * 160 * 9 / 2 * PRICE.cache_read) == pytest.approx(0.324)
        ),
        "Two judges that each say *held* of 90 % agree in 82 % by chance": lambda: pytest.approx(0.82) == 0.9 * 0.9 + 0.1 * 0.1,
        "what was out of sight before a reply used it counts, whether a file has it or not": lambda: (
            (of := score_replay(replay_sample(make_rules_with_trigger("offload:threshold=500", 30_000))))["needed_later_loss"] > 0
            and of["needed_later_unrecoverable"] == 0
        ),
        "On this session `tyrum`, by rule alone, loses 86 % of what is needed later, for $1.44": lambda: (
            round(lost("tyrum"), 2) == 0.86 and round(cost("tyrum"), 2) == 1.44
        ),
        "a sentence of the source that shares at least half of its words": lambda: tyrum_checkpoint._INVENTED_BELOW == 0.5,
        "the model is asked once more and told what was wrong": lambda: CheckpointSummariser().attempts == 2,
        "summaries stay until four of one level are merged": lambda: signature(rules_modifiers.leveled).parameters["fan"].default == 4,
        "(800 characters of a result stay, two thirds of them from its head)": lambda: (
            [len(part) for part in excerpt_of("x" * 3_000)] == [533, 267]
        ),
        "500 tokens in 300 calls are 4.5 cents": lambda: round(500 * 300 * PRICE.cache_read, 3) == 0.045,
        "it compacts 21 times and costs more than the record": lambda: (
            len(replay_sample(make_rules_with_trigger("excerpts:keep_last=5", 30_000)).edits) == 21
            and cost(make_rules_with_trigger("excerpts:keep_last=5", 30_000)) > ck.score(load_sample())["cost_usd"]
        ),
        "fifteen of fifteen facts are there; under the preset `codex` twelve are": lambda: [
            sum(ck.course.facts_kept(replay_sample(name)).values()) for name in ("none", "codex")
        ] == [15, 12],
        "All columns are in scores.md": lambda: all(
            f"`{name}`" in (NOTEBOOKS.parent / "docs/scores.md").read_text(encoding="utf-8") for name in ck.score(load_sample()).index
        ),
        "What survives one need not survive the next": lambda: (
            (of := drift(load_sample()).query("cohort == 0").set_index("compactions_n")["retained"])[2] < of[1]
        ),
        "`next_interval_loss` flatters a setting that cuts every few calls, as `pi` does in this small window": lambda: (
            score_replay(replay_sample("pi"))["next_interval_loss"] < 0.1 < 1 - sum(ck.course.facts_kept(replay_sample("pi")).values()) / 15
        ),
    },
    "a3": {
        "8 points, ± 9 (`1.96 sqrt((0.14 + 0.06 - 0.08^2) / 100)`)": lambda: (
            [round(100 * x) for x in (mean(PAIRS), 1.96 * pstdev(PAIRS) / sqrt(100))] == [8, 9]
        ),
        "That interval goes from -1 to 17 points: it shows no difference, and does not exclude one of 17": lambda: (
            [round(100 * (mean(PAIRS) + sign * 1.96 * pstdev(PAIRS) / sqrt(100))) for sign in (-1, 1)] == [-1, 17]
        ),
        "finds a difference among equals far more often than in one of ten cases": lambda: count_early_stops() > 0.3,
        "Times 1.28 it is half of an 80 % interval, times 1.64 of 90 %, times 1.96 of 95 %": lambda: (
            [round(NormalDist().inv_cdf((1 + level) / 2), 2) for level in (0.8, 0.9, 0.95)] == [1.28, 1.64, 1.96]
        ),
        "Of none in `n`, the share may still be up to `3 / n` (95 %)": lambda: 0.95 < 1 - (1 - 3 / 100) ** 100 < 0.96,
        "2.57 with six, 2.26 with ten": lambda: (
            [find_student_quantile(n) for n in (6, 10)] == pytest.approx([2.57, 2.26], abs=0.01)
        ),
        "Half of a session of 0.10 dollars and 2 % of one of 10 dollars are 26 % on the mean, and 2.5 % of the money": lambda: (
            mean([0.5, 0.02]) == pytest.approx(0.26) and round((0.05 + 0.2) / 10.1, 3) == 0.025
        ),
        "And whoever looks at twenty figures with 90 % intervals finds two outside by chance": lambda: pytest.approx(2) == 20 * (1 - 0.9),
        "scatter by 4 points among 20 settings, the best of equals leads by 7": lambda: round(4 * expect_luck(20)) == 7,
        "12 ± 2 before 13 ± 9": lambda: 12 - 2 > 13 - 9,
        "the base rate `b` alone gets `b (1 - b)`": lambda: pytest.approx(0.25 * 0.75) == 0.25 * 0.75**2 + 0.75 * 0.25**2,
        "The least of 2 lies on average `0.56 d` below the truth, of 10 `1.54 d`, of 200 `2.75 d`": lambda: (
            [round(expect_luck(n), 2) for n in (2, 10, 200)] == [0.56, 1.54, 2.75]
        ),
        "the best of 200 on one session looks 14 points too good": lambda: round(5 * expect_luck(200)) == 14,
        "On the mean of five sessions `d` is smaller by the root of 5, and 6 points are left": lambda: round(5 * expect_luck(200) / 5**0.5) == 6,
        "dollars or calls outside the 80 % interval clearly more often than once in five": lambda: means_and_prediction_intervals.SHARE == 0.8,
        "279 of 341 later sessions had as many calls as promised, 82 %; for one of 15 developers it was 2 of 5": lambda: (
            "| calls | 82% | 279 of 341 | 15 | 2 of 5 |" in FORECASTS
        ),
        "Over the six samples the preset `fuseraft` costs a dollar a session less than no management, on the mean": lambda: (
            compare_settings(_sweep_fuseraft(), "fuseraft", "none")["mean"] == pytest.approx(-1, abs=0.05)
        ),
        "with `z` = 1.64 for an interval of 90 % and 1.28 for one of 80 %": lambda: (
            [round(NormalDist().inv_cdf((1 + share) / 2), 2) for share in (0.9, 0.8)] == [1.64, 1.28]
        ),
        "With so many the interval leaves out zero in half of all cases; to see the difference in four of five, it takes two to three times as many": lambda: (
            all(
                count_seen_differences(round(count_runs(0.5, 1.5, share, seen)), share) == pytest.approx(seen, abs=0.03)
                for share in (0.8, 0.9) for seen in (0.5, 0.8)
            )
            and all(2 < count_runs(1, 1, share, 0.8) / count_runs(1, 1, share) < 3 for share in (0.8, 0.9))
        ),
        "Sessions differ far more than settings do": lambda: (
            (of := gridded()).mean(axis=0).std() > 5 * of.mean(axis=1).std()
        ),
        "Two sessions would be far too few, and the kit marks fewer than five": lambda: (
            compare_settings(few(4), "fuseraft", "none")["few_sessions"] and not compare_settings(few(5), "fuseraft", "none")["few_sessions"]
        ),
    },
}  # fmt: skip


BECAUSE = {
    "03-guess": {
        "send fewer tokens and cost more": lambda: (
            (of := score_replay(replay_sample(CAREFUL), loss=False))["prompt_tokens"] < ck.score(load_sample())["prompt_tokens"]
            and of["cost_usd"] > ck.score(load_sample())["cost_usd"]
        )
    },
    "04-b": {"none is cheaper, as really paid, than no management": lambda: lived()["usd_real"].idxmin() == "none"},
    "05-a": {"Much of it is the read": lambda: round(88_000 * PRICE.cache_read / 0.05475, 1) == 0.5},
    "05-c": {
        "All pauses together are more than a seventh of the bill": lambda: (
            sum(m.expected - m.read_tokens for m in pauses()) * (PRICE.cache_write - PRICE.cache_read) > ck.score(load_sample())["cost_usd"] / 7
        )
    },
    "06-a": {
        "Two of them the first summary still had": lambda: sum(
            bool(re.search(pattern, load_sample().edits[0].inserted[0].text))
            for fact, pattern in load_sample().details["facts"] if not ck.course.facts_kept(load_sample())[fact]
        ) == 2
    },
    "a2-guess": {"three tosses of a coin": lambda: 15 - sum(ck.course.facts_kept(replay_sample("codex")).values()) == 3},
    "a3-a": {
        "What is cheapest on one session is not the cheapest on the other": lambda: gridded().idxmin().nunique() == 2
    },
}  # fmt: skip
"""What a right answer is told."""
