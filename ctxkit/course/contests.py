"""`ctxkit.contest`: the cheapest rules that keep every fact of the sample."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ctxkit._internal import formatting
from ctxkit._internal.formatting import sanitize_line
from ctxkit._internal.safe_fs import SafeFolder
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.course.sample_data import facts_kept, load_sample, replay_sample, score_replay
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from ctxkit.presets.registry import RulesLike

__all__ = ["ALLOWED_LOSS", "Contest", "ContestEntry", "contest"]

ALLOWED_LOSS = 0.05
"""Share of what is needed later that an entry may take out of sight."""
_FILE = Path(".ctxkit") / "contest.json"
_MAX_FILE_BYTES = 1_000_000
"""Bytes of a table that is read back."""
_HEADS = (
    Column("name", number=False, firm=True),
    Column("rules", number=False),
    Column("cost", "dollars of the replay"),
    Column("facts", "of the fifteen, shown when the last turn begins"),
    Column("lost", "share of what is needed later that was out of sight"),
    Column("peak", "tokens of the largest prompt", spare=True),
    Column("compactions", "compactions", spare=True),
    Column("counts", "whether it counts, and if not why", number=False, firm=True),
)


class ContestEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: figures of its replay of the sample `billing`."""

    name: str
    rules: str
    cost_usd: float
    low_usd: float | None
    """Lower end of the interval of `cost_usd`, and `high_usd` the upper one; None: no log of its
    kind taught the cache model, so that there is no interval.
    """
    high_usd: float | None
    real_run_low_usd: float | None
    """Lower end of what real runs of that kind cost, with as many calls as they might take."""
    real_run_high_usd: float | None
    facts_n: int
    kept_n: int
    needed_later_loss: float
    peak_tokens: int
    compactions_n: int
    over_window: bool

    @property
    def why(self) -> str:
        """Why it does not count; empty where it does."""
        parts = []
        if self.kept_n < self.facts_n:
            parts.append(f"keeps {self.kept_n} of {self.facts_n} facts")
        if self.needed_later_loss > ALLOWED_LOSS:
            parts.append(f"loses {self.needed_later_loss:.0%}")
        if self.over_window:
            parts.append("runs past the window")
        return ", ".join(parts)


@dataclass(frozen=True, repr=False)
class Contest:
    """The reader's table of entries, kept in a file, so that it goes on in the next notebook."""

    path: Path = _FILE

    @staticmethod
    def tried(name: str, rules: RulesLike) -> ContestEntry:
        """Return the figures of rules, without entering them.

        Raises:
            BadArguments: they are no rules.
        """
        replay = replay_sample(rules)
        row, facts = score_replay(replay), facts_kept(replay)
        return ContestEntry(
            name=sanitize_line(name, 40),
            rules=sanitize_line(str(row["rules"]), 120),
            cost_usd=float(row["cost_usd"]),
            low_usd=_float_or_none(row["cost_low_usd"]),
            high_usd=_float_or_none(row["cost_high_usd"]),
            real_run_low_usd=_float_or_none(row["real_run_low_usd"]),
            real_run_high_usd=_float_or_none(row["real_run_high_usd"]),
            facts_n=len(facts),
            kept_n=sum(facts.values()),
            needed_later_loss=float(row["needed_later_loss"]),
            peak_tokens=int(row["peak_tokens"]),
            compactions_n=int(row["compactions_n"]),
            over_window=formatting.has_value(row["first_call_over_window"]),
        )

    def enter(self, name: str, rules: RulesLike) -> Contest:
        """Enter rules under a name; an entry of the same name gives way. Returns the table.

        Raises:
            BadArguments: it is no name, they are no rules, or the table cannot be kept.
        """
        if not isinstance(name, str) or not name.strip():
            raise BadArguments("Give a name, then the rules: contest.enter('mine', rules).")
        entry = self.tried(name, rules)
        others = [e for e in self.entries if e.name != entry.name]
        data = msgspec.json.format(msgspec.json.encode([*others, entry]), indent=1)
        try:
            with SafeFolder.own(self.path.parent) as folder:
                folder.write(self.path.name, (data,))
        except OSError as error:
            sentence = f"The table cannot be kept in {str(self.path)!r} ({error.strerror})."
            raise BadArguments(sentence) from None
        return self

    @property
    def entries(self) -> tuple[ContestEntry, ...]:
        """The entries: those that count first, the cheapest on top."""
        # a table that is missing, damaged or too large counts as empty
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if self.path.stat().st_size <= _MAX_FILE_BYTES:
                entries = msgspec.json.decode(self.path.read_bytes(), type=list[ContestEntry])
                # False sorts before True: entries that count come first
                return tuple(sorted(entries, key=lambda e: (bool(e.why), e.cost_usd)))
        return ()

    @property
    def best(self) -> ContestEntry | None:
        """The cheapest entry that counts."""
        return next((e for e in self.entries if not e.why), None)

    def answer(self) -> str:
        """Return what may be said of the best entry: rules, price, risk, and what nobody knows."""
        best = self.best
        if best is None:
            return "No entry counts yet: keep every fact, and lose at most 5 %."
        recorded = score_replay(load_sample(), loss=False)["cost_usd"]
        none = score_replay(replay_sample("none"), loss=False)["cost_usd"]
        # both ends are known only where the record says under which rules it was made
        real = "unknown: the record does not say under which rules it was made"
        if best.real_run_low_usd is not None and best.real_run_high_usd is not None:
            real = f"${best.real_run_low_usd:.2f} to ${best.real_run_high_usd:.2f}"
        interval = ""
        if best.low_usd is not None and best.high_usd is not None:
            interval = f" (${best.low_usd:.2f} to ${best.high_usd:.2f})"
        lines = [f"For this session: {best.rules} ({best.name})."]
        lines.append(
            f"This much: ${best.cost_usd:.2f}{interval}, beside ${recorded:.2f} as recorded "
            f"and ${none:.2f} never compacted."
        )
        lines.append(
            f"This risk: {best.kept_n} of {best.facts_n} facts are shown as the last turn begins, "
            f"and {best.needed_later_loss:.1%} of what was used again had been taken away."
        )
        lines.append(
            "This we do not know: what the agent would have done. Real runs of such rules: "
            f"{real}. And one session is one session."
        )
        return "\n".join(lines)

    def _table(self) -> Table:
        best = self.best
        return Table(_HEADS, tuple(_make_row(e, best=e is best or e == best) for e in self.entries))

    def to_text(self) -> str:
        """Return the table as text."""
        return self._table().to_text() or "No entry yet: ck.contest().enter('my name', rules)."

    def to_html(self) -> str:
        """Return the table as HTML."""
        return self._table().to_html() or f"<p>{self.to_text()}</p>"

    def _repr_html_(self) -> str:
        return self.to_html()

    __repr__ = to_text


def contest(path: str | Path | None = None) -> Contest:
    """Return the contest of the course: the cheapest rules that keep all facts of `billing`.

    An entry counts if it keeps fifteen of fifteen facts until the last turn begins, takes at most
    5 % of what is needed later out of sight, and fits the window. `contest().enter(name, rules)`
    enters one; the table stays in a file of the working folder.

    Args:
        path: the file; None: `.ctxkit/contest.json`.

    Example:
        >>> import tempfile
        >>> import ctxkit as ck
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     contest = ck.contest(f"{folder}/contest.json")
        >>> type(contest).__name__
        'Contest'
    """
    return Contest(Path(path) if path else _FILE)


def _float_or_none(value: object) -> float | None:
    return float(str(value)) if formatting.has_value(value) else None


def _make_row(entry: ContestEntry, *, best: bool) -> tuple[Cell, ...]:
    tone = "good" if best else ("grey" if entry.why else "")
    return (
        Cell(entry.name, tone=tone),
        Cell(entry.rules),
        Cell(f"${entry.cost_usd:.2f}", entry.cost_usd, tone=tone),
        Cell(f"{entry.kept_n} of {entry.facts_n}", entry.kept_n),
        Cell(f"{entry.needed_later_loss:.1%}", entry.needed_later_loss),
        Cell(f"{entry.peak_tokens:,}", entry.peak_tokens),
        Cell(f"{entry.compactions_n}", entry.compactions_n),
        Cell(entry.why or ("the best so far" if best else "yes"), tone=tone),
    )
