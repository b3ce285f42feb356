"""A comparison at a glance: one row for all settings that come to the same, and one word
for each.
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from ctxkit.display.amounts import change, dollars, known, number, percent, tokens
from ctxkit.display.markup import line
from ctxkit.display.sheets import Box, Heading, Tabular
from ctxkit.metrics.fronts import front

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORDED = "recorded"
FRONT = "on the front"
UNTOLD = "not told apart"
HEADS = (
    Heading("rules", "the setting; several that come to the same stand in one row", number=False),
    Heading("cost", "dollars of prompts, replies and summaries", group="dollars"),
    Heading("change", "the cost against what was recorded", group="dollars"),
    Heading("peak", "the largest prompt, in tokens", group="largest prompt", spare=True),
    Heading(
        "window", "the largest prompt as a share of the model's window", group="largest prompt"
    ),
    Heading("cuts", "compactions", group="compactions"),
    Heading(
        "lost",
        "of the items that the record used again, the share that was out of sight by then",
        group="compactions",
    ),
    Heading("verdict", "in a word; all that holds when pointed at", number=False, firm=True),
)
LEGEND = (
    "Change: the cost against the record. Window: the largest prompt as a share of it; in grey what"
    " does not fit. Cuts: compactions. Lost: of the items needed again, the share out of sight by"
    " then. Front: nothing that fits is both cheaper and loses less. Thrashes: compactions follow"
    " each other before they have paid. Not told apart: from the record, as real runs differ by"
    " more. In a notebook a click on a head sorts; .detail has every figure."
)
_NAMES = 20
"""Letters of a row's names; of longer ones the first is told, and how many more there are."""
_SAME = (
    "prompt_tokens",
    "peak_tokens",
    "cost_usd",
    "cuts_n",
    "hidden_messages_n",
    "needed_later_loss",
)
"""Two settings that agree in these come to the same."""


class SettingVerdict(NamedTuple):
    """What is to be said of a setting in a word, and all that holds of it."""

    word: str
    tone: str = ""
    all: tuple[str, ...] = ()


def verdicts(frame: pd.DataFrame) -> list[SettingVerdict]:
    """Return the verdict on each row of scores of one session."""
    best, rows = on_front(frame), frame.to_dict("records")
    cheapest = min(
        (i for i, on in enumerate(best) if on), key=lambda i: rows[i]["cost_usd"], default=-1
    )
    told = enumerate(zip(rows, best, strict=True))
    return [_verdict(row, front=on, cheapest=i == cheapest) for i, (row, on) in told]


def on_front(frame: pd.DataFrame) -> list[bool]:
    """Return for each row whether no other one that fits the window is cheaper and loses
    no more.
    """
    fits = frame["over_call"].isna() & frame["error"].isna()
    columns = (frame[c].astype("Float64").where(fits) for c in ("cost_usd", "needed_later_loss"))
    best: list[bool] = front(*(c.to_numpy(float, na_value=nan).tolist() for c in columns)).tolist()
    return best


def _verdict(row: dict[Any, Any], *, front: bool, cheapest: bool) -> SettingVerdict:
    if known(row["error"]):
        return SettingVerdict("failed", "bad", (line(str(row["error"]), 300),))
    told: list[tuple[str, str]] = []
    if known(row["over_call"]):
        told.append((f"over the window from call {number(row['over_call'])}", "grey"))
    if known(row["thrash"]) and row["thrash"]:
        told.append(("thrashes", "bad"))
    if front:
        told.append((f"cheapest {FRONT}" if cheapest else FRONT, "good"))
    if row["rules"] == RECORDED:
        told.append(("as it was", ""))
    elif known(row["told_apart"]):
        apart = line(str(row["told_apart"]), 40)
        told.append((apart if apart == UNTOLD else f"{apart} than the record", ""))
    if not told:
        return SettingVerdict("")
    whole = tuple(word for word, _ in told)
    if whole[0].endswith(FRONT) and whole[-1] == UNTOLD:
        return SettingVerdict(f"{whole[0]}, {UNTOLD}", "", whole)
    return SettingVerdict(*told[0], whole)


def folded(frame: pd.DataFrame) -> list[list[int]]:
    """Return the places of rows that come to the same, each group at its first; the
    record alone.
    """
    groups: dict[Any, list[int]] = {}
    for i, row in enumerate(frame.to_dict("records")):
        figures = tuple(None if pd.isna(row[c]) else float(row[c]) for c in _SAME)
        alone = row["rules"] == RECORDED or known(row["error"]) or figures[0] is None
        groups.setdefault((i,) if alone else figures, []).append(i)
    return list(groups.values())


def glance(frame: pd.DataFrame) -> Tabular:
    """Return a comparison as a table that reads at a glance."""
    names = [line(str(n), 80) for n in frame.index]
    rows, said = frame.to_dict("records"), verdicts(frame)
    record = next((r["cost_usd"] for r in rows if r["rules"] == RECORDED), None)
    made = []
    for group in folded(frame):
        i = group[0]
        found = said[i] if len(group) == 1 else _together([said[k] for k in group])
        made.append(_row([names[k] for k in group], rows[i], found, record))
    return Tabular(HEADS, tuple(made), legend=LEGEND)


def _together(found: Iterable[SettingVerdict]) -> SettingVerdict:
    """Return one verdict for rows that come to the same: that of the one that has most to say."""
    return max(found, key=lambda v: (v.word.startswith("cheapest"), len(v.all)))


def _row(
    names: list[str], row: dict[Any, Any], said: SettingVerdict, record: Any
) -> tuple[Box, ...]:
    tone = "grey" if said.tone == "grey" or known(row["error"]) else ""
    cost, peak, window = (row[c] for c in ("cost_usd", "peak_tokens", "window_tokens"))
    first, *others = sorted(names, key=lambda n: (n != "none", len(n)))
    name = ", ".join([first, *others])
    if others and len(name) > _NAMES:
        name = f"{first} and {len(others)} more"
    replayed = row["rules"] != RECORDED and known(cost) and known(record) and record
    against = cost / record - 1 if replayed else None
    return (
        Box(name, None, ", ".join(names), tone),
        _box(dollars(cost) if known(cost) else "", cost, tone, _interval(row)),
        _box(change(against) if known(against) else "", against, tone),
        _box(tokens(peak) if known(peak) else "", peak, tone),
        _share(peak, window, tone),
        _box(
            number(row["cuts_n"]) if known(row["cuts_n"]) else "", row["cuts_n"], tone, _unpaid(row)
        ),
        _box(
            percent(row["needed_later_loss"]) if known(row["needed_later_loss"]) else "",
            row["needed_later_loss"],
            tone,
        ),
        Box(said.word, None, "; ".join(said.all), said.tone),
    )


def _share(peak: Any, window: Any, tone: str) -> Box:
    if not (known(peak) and known(window) and window):
        return Box("", None, "the window is not known", tone)
    return Box(percent(peak / window), float(peak / window), f"of {tokens(window)} tokens", tone)


def _interval(row: dict[Any, Any]) -> str:
    out = []
    if (
        known(row["cost_low_usd"])
        and known(row["cost_high_usd"])
        and row["cost_low_usd"] < row["cost_high_usd"]
    ):
        out.append(
            f"{dollars(row['cost_low_usd'])} to {dollars(row['cost_high_usd'])} by what the cache"
            " model misses"
        )
    if known(row["real_low_usd"]):
        out.append(
            f"of real runs {dollars(row['real_low_usd'])} to {dollars(row['real_high_usd'])}"
        )
    return "; ".join(out)


def _unpaid(row: dict[Any, Any]) -> str:
    n = row["unpaid_cuts_n"]
    return f"{number(n)} of them never paid" if known(n) and n else ""


def _box(text: str, value: Any, tone: str, hover: str = "") -> Box:
    return Box(text, float(value) if known(value) else None, hover, tone)
