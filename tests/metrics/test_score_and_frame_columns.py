"""Every column of a score and of the frames has a value that was worked out by hand."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
from builders import assistant, session, summarised, user
from metrics.hand_computed_sessions import MODEL, make_priced_session

import ctxkit as ck
from ctxkit.experiments import SCORE_COLUMN_NAMES, SCORE_COLUMNS
from ctxkit.metrics import FRAME_COLUMNS
from ctxkit.metrics.frames.frame_column import FrameColumn
from ctxkit.session import Usage
from ctxkit.widgets import get_session_facts

TESTS, PACKAGE = Path(__file__).parents[1], Path(ck.__file__).parent
INPUT_USD = 1800 * 3e-6 + 2000 * 0.3e-6 + 400 * 3.75e-6
OUTPUT_USD = 110 * 15e-6
SCORE = {
    "session": "test",
    "rules": "recorded",
    "calls_n": 4,
    "prompt_tokens": 1400 + 1500 + 600 + 700,
    "peak_tokens": 1500,
    "window_tokens": 200_000,
    "fresh_tokens": 1000 + 100 + 600 + 100,
    "cache_read_tokens": 1400 + 600,
    "cache_write_tokens": 400,
    "output_tokens": 50 + 30 + 20 + 10,
    "input_usd": INPUT_USD,
    "output_usd": OUTPUT_USD,
    "cost_source": "estimated",  # nobody recorded what the summary cost
    "compactions_n": 1,
    "not_paid_back_n": 0,
    "no_progress_streak": 0,
    "is_thrashing": False,
    "token_savings": 1 - 598 / 1530,  # 1,500 + the reply's 30, and 600 without the new question's 2
    "message_savings": 1 - 4 / 6,  # three of six went, one came
    "hidden_messages_n": 3,
    "hidden_results_n": 1,
    "items_n": 2,  # two paths
    "retained": 1 / 2,
    "recoverable": 0.0,
    "lost": 1 / 2,
    "reused_items_n": 2,
    "needed_later_n": 2,
    "needed_lost_n": 1,
    "needed_later_loss": 1 / 2,
    "needed_later_unrecoverable": 1 / 2,
    "weighted_loss": 1 / 2,  # the user named both
    "at_stake_items_n": 2,
    "summary_recall": 1 / 2,
    "next_interval_loss": 1 / 2,
    "calls_to_first_use": 1,  # lost before call 2, named in call 3
    "user_rules_restated_n": 0,
    "stale_values_n": 0,
    "unexplained_miss_share": 0.0,  # a cold start and a compaction
    "explained_miss_share": 1.0,
    "priced_share": 1.0,
    "counter": "o200k_base",
    "source": "recorded",
}  # fmt: skip
"""Values of the session of `hand_computed_sessions.py`; its prices and usage are there."""
MISSING = {
    *("first_call_over_window", "refused_calls_n", "elongation", "elongation_low"),
    *("elongation_high", "real_run_low_usd", "real_run_high_usd", "vs_recorded"),
    *("paid_back_share", "refilled_share", "rebound_calls", "reread_rate", "calls_to_first_write"),
    *("calls_to_resume", "calls_to_rule_breach", "suppressed_compactions_n"),
    *("failed_compactions_n", "user_rules_kept", "loss_note", "session_notes", "note", "error"),
    *("prediction_low", "prediction_high", "compaction_read_error"),
}
"""Columns that have no value in it: one compaction, the last; no rule; a record, not a replay."""
ELSEWHERE = {
    "cost_usd": "metrics/test_score_and_frame_columns.py",
    "summaries_usd": "metrics/test_score_and_frame_columns.py",
    "cost_low_usd": "metrics/test_score_and_frame_columns.py",
    "cost_high_usd": "metrics/test_score_and_frame_columns.py",
    "list_price_usd": "metrics/test_score_and_frame_columns.py",
    "summary_tokens": "metrics/test_score_and_frame_columns.py",
    "regret": "metrics/test_loss.py",
    "prediction_error": "engine/cache_model/test_input_cost_prediction.py",
    "second_half_error": "engine/cache_model/test_input_cost_prediction.py",
    "read_split_error": "engine/cache_model/test_input_cost_prediction.py",
    "lifetime_error": "engine/cache_model/test_input_cost_prediction.py",
    "closure_error": "experiments/test_cost_and_loss_scores.py",
    "all_cached_error": "metrics/test_score_and_frame_columns.py",
    "nothing_cached_error": "metrics/test_score_and_frame_columns.py",
    "prediction_note": "engine/cache_model/test_input_cost_prediction.py",
    "counter_error": "metrics/test_score_and_frame_columns.py",
}
"""Columns whose value rests on a model or a sum: the test that works it out."""


@pytest.fixture(scope="module")
def score() -> pd.Series:
    return ck.score(make_priced_session())


def test_every_column_of_a_score_is_held():
    assert set(SCORE) | MISSING | set(ELSEWHERE) == set(SCORE_COLUMN_NAMES)
    for column, file in ELSEWHERE.items():
        assert column in (TESTS / file).read_text(encoding="utf-8"), column


@pytest.mark.parametrize("column", SCORE)
def test_a_column_of_a_score_is_what_was_worked_out(score, column):
    wanted = SCORE[column]
    assert score[column] == (pytest.approx(wanted) if isinstance(wanted, float) else wanted)


@pytest.mark.parametrize("column", sorted(MISSING))
def test_what_the_session_cannot_say_is_missing(score, column):
    assert pd.isna(score[column])


def test_dollars_of_a_score_are_sums_of_their_parts(score):
    assert score["cost_usd"] == pytest.approx(INPUT_USD + OUTPUT_USD + score["summaries_usd"])
    # the summariser reads a part of a prompt of 1,530 tokens and writes the summary
    assert 0 < score["summary_tokens"] < 600  # it is in a prompt of 600
    written = score["summary_tokens"] * 15e-6
    assert written < score["summaries_usd"] < written + 1530 * 3e-6
    assert score["cost_low_usd"] == score["cost_usd"] == score["cost_high_usd"]
    assert score["list_price_usd"] == pytest.approx(score["cost_usd"])


def test_models_of_the_cache_err_on_the_side_that_they_must(score):
    assert score["nothing_cached_error"] > 0 > score["all_cached_error"]
    assert -1 < score["counter_error"] < 0  # a few words stand for prompts of 1,400 tokens


RANGES = {
    **dict.fromkeys(("tokens", "messages", "entries", "characters", "calls", "turns"), (0, 1e9)),
    **dict.fromkeys(("items", "compactions"), (0, 1e9)),
    "US dollars": (0, 1e6),
    "seconds": (0, 1e9),
    "share": (0, 1),
}
"""The smallest and the largest value of a unit."""
SHARES = {
    *("paid_back_share", "refilled_share", "reread_rate", "token_savings", "message_savings"),
    *("retained", "recoverable", "lost", "needed_later_loss", "needed_later_unrecoverable"),
    *("weighted_loss", "summary_recall", "user_rules_kept", "next_interval_loss"),
    *("unexplained_miss_share", "explained_miss_share", "priced_share"),
}
"""Columns of a score that are shares."""
CALLS = {"rebound_calls", "calls_to_first_write", "calls_to_resume", "calls_to_rule_breach",
         "calls_to_first_use"}  # fmt: skip
ENDINGS = {
    "_tokens": "tokens",
    "_usd": "US dollars",
    "_share": "share",
    "_savings": "share",
    "_n": "",
}
"""What the end of a name promises of its unit; messages that are counted have their own."""
WIDER = {"refilled_share": (0, 9)}
"""Shares that can be larger: a prompt that grew back to more than it was."""
TABLES = {"score": SCORE_COLUMNS, **FRAME_COLUMNS}


def test_each_column_of_a_score_has_its_unit():
    assert {c.name for c in SCORE_COLUMNS if c.unit == "share"} == SHARES
    assert {c.name for c in SCORE_COLUMNS if c.unit == "calls"} == CALLS


def find_column_tables() -> dict[str, tuple[FrameColumn, ...]]:
    """Return all tables of columns that the package defines, by module and name."""
    tables = {}
    for file in PACKAGE.rglob("*.py"):
        if "FrameColumn(" in file.read_text(encoding="utf-8"):
            name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
            for variable, value in vars(import_module(name)).items():
                if isinstance(value, tuple) and value and {*map(type, value)} == {FrameColumn}:
                    tables[f"{name}.{variable}"] = value
    return tables


def test_each_column_of_any_table_has_a_known_unit_and_a_meaning():
    tables = find_column_tables()
    assert {*TABLES.values()} <= {*tables.values()}
    columns = [(table, column) for table, found in tables.items() for column in found]
    for table, column in columns:
        assert column.unit in {"", "UTC", *RANGES}, (table, column)
        assert column.meaning not in {"", *RANGES}, (table, column)


@pytest.fixture(scope="module")
def samples():
    return [ck.read(ck.samples.path(name)) for name in ("billing", "incident", "research")]


@pytest.mark.parametrize("table", TABLES)
def test_every_number_has_a_unit_and_is_in_the_range_of_it(table, samples):
    make = ck.score if table == "score" else lambda s: ck.frame(s, per=table)
    rows = pd.concat([pd.DataFrame(made.to_frame().T if table == "score" else made)
                      for made in map(make, samples)])  # fmt: skip
    for column in TABLES[table]:
        for end, unit in ENDINGS.items():
            if column.name.endswith(end) and column.unit != "messages":
                assert column.unit == unit, column.name
        low, high = WIDER.get(column.name, RANGES.get(column.unit, (0, 1e9)))
        if column.dtype in {"Int64", "Float64"} and not column.name.endswith("error"):
            values = pd.to_numeric(rows[column.name]).dropna()
            assert values.between(low, high).all(), column.name


FRAMES = {
    "call": {
        "turn": [0, 0, 1, 2],
        "call": [0, 1, 2, 3],
        "position": [2, 4, 8, 10],
        "prompt_tokens": [1400, 1500, 600, 700],
        "input_tokens": [1000, 100, 600, 100],
        "cache_read_tokens": [0, 1400, 0, 600],
        "cache_write_tokens": [400, 0, 0, 0],
        "output_tokens": [50, 30, 20, 10],
        "context_limit": [200_000] * 4,
        "cost_usd": [0.00525, 0.00117, 0.0021, 0.00063],
        "list_price_usd": [0.00525, 0.00117, 0.0021, 0.00063],
        "cache_miss": ["cold_start", None, "compaction", None],
        "tool_calls_n": [1, 1, 0, 0],
        "is_error": [False] * 4,
    },
    "turn": {
        "turn": [0, 1, 2],
        "turn_input_tokens": [2900, 600, 700],
        "turn_output_tokens": [80, 20, 10],
        "cumulative_input_tokens": [2900, 600, 1300],  # it begins again behind a compaction
        "compaction_occurred": [True, False, False],
        "context_tokens": [1500, 600, 700],
        "cache_read_tokens": [1400, 0, 600],
        "cost_usd": [0.00642, 0.0021, 0.00063],
        "calls_n": [2, 1, 1],
    },
    "compaction": {
        "compaction": [0],
        "call": [2],
        "turn": [0],
        "position": [6],
        "tokens_before": [1530],
        "tokens_after": [598],
        "messages_before": [6],
        "messages_after": [4],
        "affected_messages_n": [3],
        "token_savings": [1 - 598 / 1530],
        "message_savings": [1 / 3],
    },
    "session": {
        "seconds": [210.0],
        "messages_n": [10],
        "calls_n": [4],
        "turns_n": [3],
        "tool_calls_n": [2],
        "tool_errors_n": [1],
        "failed_calls_n": [0],
        "errors_n": [1],
        "events_n": [0],
        "images_n": [0],
        "compactions_n": [1],
        "unmarked_drops_n": [0],
        "children_n": [0],
        "prompt_tokens": [4200],
        "cache_read_tokens": [2000],
        "output_tokens": [110],
        "logged_prompt_tokens": [None],
        "logged_output_tokens": [None],
        "peak_tokens": [1500],
        "calls_usd": [INPUT_USD + OUTPUT_USD],
        "has_text": [True],
        "has_usage": [True],
        "has_cache": [True],
        "has_time": [True],
        "skipped_n": [0],
        "read_faults_n": [0],
    },
    "message": {
        "position": [0, 1, 2, 3, 4, 5, 7, 8, 9, 10],
        "turn": [0] * 6 + [1, 1, 2, 2],
        "call": [0, 0, 0, 1, 1, 2, 2, 2, 3, 3],
        "chars": [17, 52, 42, 13, 39, 12, 8, 30, 7, 28],
        "visible": [True, False, False, False] + [True] * 6,
        "compaction": [None, 0, 0, 0] + [None] * 6,
        "is_error": [False] * 5 + [True] + [False] * 4,
        "pinned": [False] * 10,
    },
}  # fmt: skip
MODELLED = {
    "message": {"tokens", "shown_tokens", "sent_tokens"},  # the tokenizer's: tests/tokens
    "call": {"cache_write_1h_tokens", "reasoning_tokens", "seconds"},  # not said
    "turn": {"warn_at", "cutover_at"},  # not said
    "compaction": {"summary_tokens", "cost_usd"},  # of a summary: by size
    "session": {"cost_usd", "list_price_usd", "summaries_usd"},  # with that of the summary
}


def list_number_columns(per: str) -> set[str]:
    """Return the columns of a frame that hold a number or a truth value."""
    frame = ck.frame(make_priced_session(), per=per)
    return {c.name for c in FRAME_COLUMNS[per] if pd.api.types.is_numeric_dtype(frame[c.name])}


@pytest.mark.parametrize("per", FRAME_COLUMNS)
def test_every_number_of_a_frame_is_held(per):
    held = {c for c in FRAMES[per] if not isinstance(FRAMES[per][c][0], str)}
    assert list_number_columns(per) - held == MODELLED[per]


@pytest.mark.parametrize(("per", "column"), [(p, c) for p in FRAMES for c in FRAMES[p]])
def test_a_column_of_a_frame_is_what_was_worked_out(per, column):
    got = [None if pd.isna(v) else v for v in ck.frame(make_priced_session(), per=per)[column]]
    wanted = FRAMES[per][column]
    assert got == (pytest.approx(wanted) if isinstance(wanted[0], float) else wanted)


def test_totals_that_a_log_states_alone_are_no_sums_of_its_calls():
    totals = {"input_tokens": 900, "output_tokens": 40}
    row = ck.frame(session(user("go"), assistant("done"), details=totals), per="session").iloc[0]
    assert (row.logged_prompt_tokens, row.logged_output_tokens, row.source) == (900, 40, "recorded")
    assert row[["prompt_tokens", "output_tokens", "peak_tokens"]].isna().all()
    page = dict(get_session_facts(session(user("go"), assistant("done"), details=totals)))
    assert page["all prompts, by the log's total"] == "900"


def make_cycles(*cycles: tuple[int, ...]):
    """Return a session of recorded prompts: a compaction of all that is shown parts the cycles."""
    log, shown = [], []
    for i, prompts in enumerate(cycles):
        if i:
            log.append(summarised(shown))
            shown = []
        for prompt in prompts:
            used = Usage(input_tokens=prompt, cache_read_tokens=0, output_tokens=10)
            shown += [user("x" * 40), assistant("ok", usage=used, model=MODEL)]
            log += shown[-2:]
    return session(*log)


FREED = (50_000, 100_000)
HOLDS = tuple(range(20_000, 70_000, 1_000))


@pytest.mark.parametrize(
    ("cycles", "streak", "not_paid_back", "thrashes"),
    [
        ((FREED, HOLDS, (20_000,)), 0, 0, False),  # each saved four fifths, and it lasted
        ((FREED, HOLDS, HOLDS, HOLDS, HOLDS, (20_000,)), 0, 0, False),
        ((FREED, (98_000, 99_000), (97_000, 98_000), (96_000,)), 3, 2, True),  # each saved 2 %
        ((FREED, (60_000, 99_000), (60_000, 99_000), (60_000, 99_000), (60_000,)), 0, 3, True),
    ],
    ids=["one that holds", "four that hold", "no progress", "not paid back"],
)
def test_a_session_thrashes_where_three_save_little_or_most_are_not_paid_back(
    cycles, streak, not_paid_back, thrashes
):
    score = ck.score(make_cycles(*cycles))
    assert score["no_progress_streak"] == streak
    assert score["not_paid_back_n"] == not_paid_back
    assert score["is_thrashing"] == thrashes
