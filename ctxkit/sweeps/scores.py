"""One row for a session or a replay: sizes, money, how its cuts held, and what was lost."""

from __future__ import annotations

from functools import cached_property
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from ctxkit.engine import run_behind
from ctxkit.errors import BadArguments
from ctxkit.frames.cuts import cuts as placed
from ctxkit.frames.occupancy import prompts as plain_prompts
from ctxkit.metrics.bills import Sheet
from ctxkit.metrics.compaction import Sizes as Prompts
from ctxkit.metrics.compaction import held
from ctxkit.metrics.forgotten import Forgotten
from ctxkit.metrics.indexes import Index
from ctxkit.metrics.memories import Memory
from ctxkit.metrics.money import recorded
from ctxkit.metrics.quick import Prompts as QuickPrompts
from ctxkit.metrics.quick import Quick
from ctxkit.metrics.quick import hidden as hidden_quickly
from ctxkit.metrics.rereads import Rereads
from ctxkit.metrics.shown import shown_by, shown_in
from ctxkit.metrics.size import sent, spots_in, spots_of
from ctxkit.metrics.thrash import compactions
from ctxkit.replays import crowded, hidden, shared_tokens
from ctxkit.session import Session
from ctxkit.sizes import Sizes, sizes
from ctxkit.sweeps.columns import NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from ctxkit.engine import Run
    from ctxkit.history import Log
    from ctxkit.metrics.compaction import Compaction


class Base:
    """What all rows of one recorded session share: made once, whatever is replayed on it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._quick: dict[int, tuple[Log, Quick | None]] = {}

    @cached_property
    def anchored(self) -> Sizes:
        """The sizes of its messages."""
        return sizes(self.session)

    @cached_property
    def sheet(self) -> Sheet:
        """What it tells about the cost of replays."""
        return Sheet.of(self.session, self.anchored)

    @cached_property
    def index(self) -> Index:
        """The items of its messages."""
        return Index(self.anchored)

    @cached_property
    def memory(self) -> Memory:
        """What its messages hold, as arrays."""
        return Memory(self.session, self.index)

    @cached_property
    def rereads(self) -> Rereads:
        """Its tool calls."""
        return Rereads(self.memory)

    def quick(self, log: Log) -> Quick | None:
        """Return the running sums over a log, where they can say what a run costs."""
        key = id(log)
        if key not in self._quick:
            self._quick[key] = (log, Quick.of(self.sheet, log))
        return self._quick[key][1]

    def head(self, rules: str, source: str | None) -> dict[str, Any]:
        """Return the columns that do not depend on a run."""
        return {"session": self.session.id, "rules": rules, **self._told, "source": source}

    @cached_property
    def _told(self) -> dict[str, Any]:
        sheet = self.sheet
        return {
            "calls_n": int(sheet.billed.sum()),
            "output_tokens": int(sheet.output[sheet.billed].sum()) if sheet.has_output else None,
            "reproduction_error": sheet.error,
            "unexplained_misses": sheet.unexplained,
            "priced": sheet.priced,
            "counter": self.anchored.counter,
            "counter_error": self.anchored.error,
        }

    @property
    def source(self) -> str:
        """Where the sizes of a replay come from."""
        return "derived" if self.sheet.has_usage else "estimated"


def score(session: Session, *, loss: bool = True, reuse: bool = False) -> pd.Series:
    """Return one row for a recorded session or a replay of one, under the names of `sweeps.columns.COLUMNS`.

    Shares lie between 0 and 1, counts end in `_n`, money is dollars; what the data cannot say is missing, never zero.
    A recorded session is scored by its own bill. A replay is billed by the recorded session's cache behaviour (see
    `metrics.bills`), over the calls that the record bills.

    Args:
        session: a session, or what `replay` returned.
        loss: work out what was lost too; it reads every text once. Missing for a replay whose rules prune each call
            and that was read from a file: what was hidden is then not known.
        reuse: the call that writes a summary reads the cached prompt; else it sends what it summarises afresh.

    Raises:
        BadArguments: it is no session.
    """
    import pandas as pd

    row = row_of(session, loss=loss, reuse=reuse)
    return pd.Series({n: pd.NA if row.get(n) is None else row[n] for n in NAMES}, name=row["rules"], dtype=object)


def row_of(
    session: Session, base: Base | None = None, done: Run | None = None, *, loss: bool = True, reuse: bool = False
) -> dict[str, Any]:
    """Return the row of a session or a replay as plain values; the run behind it tells what a pruning hid."""
    if not isinstance(session, Session):
        raise BadArguments(f"A session or a replay can be scored, not {type(session).__name__}.")
    base = base or Base(session.origin or session)
    row = _replayed(base, session, reuse=reuse) if session.origin is not None else _recorded(base, reuse=reuse)
    if loss:
        row |= lost(base, session, done)
    return row


def lost(base: Base, session: Session | None, done: Run | None = None) -> dict[str, Any]:
    """Return the columns of loss of a session or of a run, and what was done after its compactions."""
    if done is None and session is not None:
        done = run_behind(session)
    if done is not None:
        shown, calls = shown_by(base.memory, done), [cut.call for cut in done.cuts]
    else:
        assert session is not None  # noqa: S101  one of both is given
        shown = shown_in(base.memory, session)
        calls = shown.moments.tolist()
    unknown = done is None and session is not None and session.details.get("replay", {}).get("pruning")
    found = {} if unknown or not base.session.has_text else Forgotten(base.memory, shown).columns()
    told = [base.rereads.after(shown, call) for call in dict.fromkeys(calls) if 0 < call < base.memory.calls]
    rates, firsts = ([v for v in of if v is not None] for of in zip(*told, strict=True)) if told else ([], [])
    found["reread_rate"] = fmean(rates) if rates else None
    found["reorientation_calls"] = float(median(firsts)) if firsts else None
    return found


def run_row(base: Base, done: Run, label: str, *, loss: bool = False, reuse: bool = False) -> dict[str, Any]:
    """Return the row of a run, equal to that of the session which `replay` makes of it."""
    row = _run_row(base, done, label, reuse=reuse)
    return row | lost(base, None, done) if loss else row


def _run_row(base: Base, done: Run, label: str, *, reuse: bool) -> dict[str, Any]:
    failed = sum(h.why.startswith("failed: ") for h in done.held) if done.held else 0
    seen: dict[str, Any] = {"suppressed": len(done.held) - failed, "failed": failed, "note": crowded(done)}
    spots, quick = spots_of(done), base.quick(done.log) if done.rules.pruning is None else None
    sums = quick.sums(done) if quick is not None else None
    if quick is None or sums is None:
        seen["hidden"] = hidden(done)
        return _row(base, label, (done.prompts, shared_tokens(done)), spots, seen, reuse=reuse)
    row = base.head(label, base.source)
    row["hidden_messages_n"], row["hidden_results_n"] = hidden_quickly(done)
    usd = quick.usd(sums)
    extra = base.sheet.summaries_usd([w for s in spots for w in s.written], reuse=reuse) if usd is not None else None
    into, out = usd or (None, None)
    rest, writes = sums.prompts - sums.read, base.sheet.fit.writes
    row |= {
        "prompt_tokens": sums.prompts,
        "peak_tokens": sums.peak,
        "cost_usd": None if into is None or out is None or extra is None else into + out + extra,
        "input_usd": into,
        "output_usd": out,
        "summaries_usd": extra,
        "suppressed_n": seen["suppressed"],
        "failed_n": seen["failed"],
        "note": seen["note"],
        "fresh_tokens": 0 if writes else rest,
        "cache_read_tokens": sums.read,
        "cache_write_tokens": rest if writes else 0,
    }
    row.update(held(spots, QuickPrompts(done.log), base.sheet, reuse=reuse))
    return row


def _replayed(base: Base, session: Session, *, reuse: bool) -> dict[str, Any]:
    told = session.details.get("replay", {})
    failed = sum(str(h.get("why", "")).startswith("failed: ") for h in told.get("held", ()))
    seen = {
        "hidden": told.get("hidden", (None, None)),
        "suppressed": len(told.get("held", ())) - failed,
        "failed": failed,
        "note": told.get("note"),
    }
    return _row(base, str(told.get("rules", "replay")), sent(session), spots_in(session), seen, reuse=reuse)


def _row(
    base: Base,
    label: str,
    sizes_: tuple[NDArray[Any], NDArray[Any]],
    spots: Sequence[Compaction],
    seen: dict[str, Any],
    *,
    reuse: bool,
) -> dict[str, Any]:
    (prompts, shared), sheet = sizes_, base.sheet
    bill = sheet.bill(prompts, shared, [s.call for s in spots], [w for s in spots for w in s.written], reuse=reuse)
    mine = sheet.billed
    row = base.head(label, base.source)
    row |= {
        "prompt_tokens": int(prompts[mine].sum()),
        "peak_tokens": int(prompts[mine].max()) if mine.any() else None,
        "cost_usd": bill.total_usd,
        "input_usd": bill.input_usd,
        "output_usd": bill.output_usd,
        "summaries_usd": bill.summaries_usd,
        "hidden_messages_n": seen["hidden"][0],
        "hidden_results_n": seen["hidden"][1],
        "suppressed_n": seen["suppressed"],
        "failed_n": seen["failed"],
        "note": seen["note"],
    }
    if sheet.has_usage:
        split = (("fresh_tokens", bill.fresh), ("cache_read_tokens", bill.read), ("cache_write_tokens", bill.write))
        row |= {name: int(tokens[mine].sum()) for name, tokens in split if sheet.has_cache or name == "fresh_tokens"}
    return row | held(spots, Prompts(prompts), sheet, reuse=reuse)


def _recorded(base: Base, *, reuse: bool) -> dict[str, Any]:
    session, sheet = base.session, base.sheet
    sizes_, source = plain_prompts(session)
    known = [n for n in sizes_ if n]
    ledger, (cuts, prompts) = recorded(session), compactions(session, base.anchored)
    extra = sheet.summaries_usd([w for c in cuts for w in c.written], reuse=reuse)
    into, out = ledger.input_usd, ledger.output_usd if sheet.has_output else None
    row = base.head("recorded", source)
    row |= {
        "prompt_tokens": sum(known) if known else None,
        "peak_tokens": max(known, default=None),
        "cost_usd": None if into is None or out is None or extra is None else into + out + extra,
        "input_usd": into,
        "output_usd": out,
        "summaries_usd": extra,
        **held(cuts, Prompts(prompts), sheet, reuse=reuse),
        "cuts_n": len(placed(session)),
    }
    if sheet.has_usage:
        row["fresh_tokens"] = ledger.sum("fresh")
        if sheet.has_cache:
            row |= {
                "cache_read_tokens": ledger.sum("read"),
                "cache_write_tokens": ledger.sum("write") + ledger.sum("write_1h"),
            }
    return row | _recorded_view(session)


def _recorded_view(session: Session) -> dict[str, Any]:
    shown = {m.id for m in session.view()}
    gone = [m for m in session.messages if m.visible and m.id not in shown]
    return {"hidden_messages_n": len(gone), "hidden_results_n": sum(m.role == "tool" for m in gone)}
