"""The rows of a sweep from runs side by side: equal to those of single runs, which do what the stack cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.sweeps.grids import plain
from ctxkit.sweeps.stack.cells import maybe
from ctxkit.sweeps.stack.figures import Runs
from ctxkit.sweeps.stack.holds import holds
from ctxkit.sweeps.stack.money import money
from ctxkit.sweeps.stack.orders import order_of
from ctxkit.sweeps.stack.purses import Purse, billable
from ctxkit.sweeps.stack.tables import Table, fits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.sweeps.batches import Bench, Options, Setting
    from ctxkit.sweeps.stack.orders import Order

LEAST = 8
"""Runs of one shape below which the engine is faster."""


def rows(
    benches: Sequence[Bench], settings: Sequence[Setting], options: Options, *, least: int = LEAST
) -> list[list[dict[str, Any] | None]]:
    """Return the rows of each session, in the order of the settings; None where a run has to be done by itself."""
    out: list[list[dict[str, Any] | None]] = [[None] * len(settings) for _ in benches]
    if options.loss:
        return out
    shapes: dict[Any, list[tuple[int, Order]]] = {}
    for place, setting in enumerate(settings):
        order = order_of(setting.rules)
        if order is not None:
            shapes.setdefault(order.shape, []).append((place, order))
    grounds: dict[Any, tuple[list[int], Table, Purse] | None] = {}
    for shape, orders in shapes.items():
        if len(orders) * len(benches) < least:
            continue
        rules: Any = settings[orders[0][0]].rules
        counting = shape[2][:2]
        if counting not in grounds:
            grounds[counting] = _ground(benches, rules)
        ground = grounds[counting]
        if ground is not None and _able(ground[1], shape):
            for i, place, row in _made(benches, settings, orders, ground, reuse=options.reuse):
                out[i][place] = row
    return out


def _ground(benches: Sequence[Bench], rules: Any) -> tuple[list[int], Table, Purse] | None:
    """Return the sessions that can be laid end to end, as a table and a purse."""
    taken = [i for i, bench in enumerate(benches) if _apt(bench, rules)]
    if not taken:
        return None
    table = Table([benches[i].log(rules) for i in taken])
    return taken, table, Purse(table, [benches[i].base.sheet for i in taken])


def _apt(bench: Bench, rules: Any) -> bool:
    """Say whether the stack can do a session; one that cannot be read is none of its."""
    try:
        log = bench.log(rules)
        return fits(log) and billable(bench.base.sheet, log)
    except Exception:  # noqa: BLE001  the row of a single run says what is wrong
        return False


def _able(table: Table, shape: tuple[Any, ...]) -> bool:
    """Say whether the logs have what the triggers ask for."""
    kinds = {word for kind in shape[1] for word in kind}
    return ("spent" not in kinds or table.one_agent) and ("turns" not in kinds or table.turns is not None)


def _made(
    benches: Sequence[Bench],
    settings: Sequence[Setting],
    orders: Sequence[tuple[int, Order]],
    ground: tuple[list[int], Table, Purse],
    *,
    reuse: bool,
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Run orders of one shape on all sessions of a table; yield session, setting and row."""
    taken, table, purse = ground
    limits = np.array([benches[i].limit or 200_000 for i in taken], np.int64)
    runs = Runs(table, [o for _, o in orders], np.arange(len(taken)), limits)
    columns, left = _columns(runs, purse, reuse=reuse)
    told = list(zip(*columns.values(), strict=True))
    heads = [{"rules": settings[p].label, "key": settings[p].key, **_parameters(settings[p])} for p, _ in orders]
    for n, i in enumerate(taken):
        bench = benches[i]
        same = {k: v for k, v in bench.base.head("", bench.base.source).items() if k != "rules"}
        own = {"session": bench.session.id}
        for j, (place, _) in enumerate(orders):
            lane = n * len(orders) + j
            if lane not in left:
                row = {**own, **heads[j], **same, "rules": settings[place].label}
                row.update(zip(columns, told[lane], strict=True))
                yield i, place, row


def _parameters(setting: Setting) -> dict[str, Any]:
    return {k: plain(v) for k, v in setting.rules.parameters.items() if k not in ("session", "rules", "key")}


def _columns(runs: Runs, purse: Purse, *, reuse: bool) -> tuple[dict[str, list[Any]], set[int]]:
    """Return the columns of a row that depend on the run, one value a lane, and the lanes that are left out."""
    bill, log = money(runs, purse, reuse=reuse), runs.session
    known, writes, cached = purse.known[log], purse.writes[log], purse.cached[log]
    answered = known & purse.answers[log]
    used = np.array([s.has_usage for s in purse.sheets])[log]
    columns = {
        "prompt_tokens": bill.prompts.tolist(),
        "peak_tokens": maybe(bill.peak, bill.peak >= 0),
        "cost_usd": maybe(bill.input_usd + bill.output_usd + bill.summaries_usd, answered),
        "input_usd": maybe(bill.input_usd, known),
        "output_usd": maybe(bill.output_usd, answered),
        "summaries_usd": maybe(bill.summaries_usd, known),
        "suppressed_n": [0] * len(log),
        "failed_n": [0] * len(log),
        "note": [None] * len(log),
        "fresh_tokens": maybe(np.where(writes, 0, bill.rest), used),
        "cache_read_tokens": maybe(bill.read, cached),
        "cache_write_tokens": maybe(np.where(writes, bill.rest, 0), cached),
        **holds(runs, purse),
    }
    return columns, {*runs.odd.tolist(), *np.flatnonzero(bill.doubtful).tolist()}
