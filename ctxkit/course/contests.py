"""`ctxkit.contest`: the cheapest rules that keep every fact of the sample."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ctxkit._internal.formatting import escape_html
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.course.contest_entries import (
    StoredContestEntry,
    encode_rules,
    get_notebook_folder,
    get_user_name,
    read_entries,
    store_entry,
)
from ctxkit.course.contest_judging import ContestEntry, judge_rules, score_contest_entry
from ctxkit.course.sample_data import load_sample, replay_sample, score_replay
from ctxkit.errors import BadArguments, CtxkitError

if TYPE_CHECKING:
    from ctxkit.presets.registry import RulesLike

__all__ = ["ContestEntry", "ContestTable", "contest"]

_FILE = Path(".ctxkit") / "contest.json"
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


@dataclass(frozen=True, repr=False)
class ContestTable:
    """The reader's table of entries, kept in a file, so that it continues in the next notebook.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from ctxkit.course import ContestTable
        >>> ContestTable(Path(tempfile.mkdtemp()) / "contest.json").entries
        ()
    """

    path: Path = _FILE
    note: str = ""
    """A sentence on the last entry if it was not simply added."""

    @staticmethod
    def tried(name: str, rules: RulesLike) -> ContestEntry:
        """Return the figures of rules on `billing`, without entering them; a function may be tried.

        Raises:
            BadArguments: they are no rules.
        """
        return judge_rules(name, rules)

    def enter(self, name: str, rules: RulesLike) -> ContestTable:
        """Enter rules under a name, and return the table with a note of what became of them.

        The file keeps the rules and no figures: the table runs them again. Of two entries of one
        name the better one stays.

        Args:
            name: of the entry, at most 40 characters.
            rules: the kit's policies, triggers and guards, or a preset; no function, since others
                run the entry again.

        Raises:
            BadArguments: it is no name, they are no rules or hold a function, or the table cannot
                be kept.
        """
        if not isinstance(name, str) or not name.strip():
            raise BadArguments("Give a name, then the rules: contest.enter('mine', rules).")
        data = encode_rules(rules)
        by = get_user_name() if self.path.is_dir() else ""
        entry = score_contest_entry(name, data, by=by)
        old = next((e for e in self.entries if (e.name, e.by) == (entry.name, entry.by)), None)
        if old is not None and old.rank < entry.rank:
            comparison = f"it {_describe(entry)}, and yours {_describe(old)}"
            note = f"{entry.name!r} was not replaced: {comparison}. Enter it under another name."
            return replace(self, note=note)
        store_entry(self.path, StoredContestEntry(name=entry.name, rules=data, by=by))
        note = f"{entry.name!r} was replaced: the old one {_describe(old)}." if old else ""
        return replace(self, note=note)

    @property
    def entries(self) -> tuple[ContestEntry, ...]:
        """The entries with their figures on `billing`: those that count first, then by dollars."""
        # a table that is missing, damaged or too large counts as empty
        stored: tuple[StoredContestEntry, ...] = ()
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            stored = read_entries(self.path)
        entries = []
        for each in stored:
            # rules that this version of the kit does not know are left out
            with contextlib.suppress(CtxkitError):
                entries.append(score_contest_entry(each.name, each.rules, by=each.by))
        return tuple(sorted(entries, key=lambda e: e.rank))

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
        text = self._table().to_text() or "No entry yet: ck.contest().enter('my name', rules)."
        return f"{text}\n{self.note}" if self.note else text

    def to_html(self) -> str:
        """Return the table as HTML."""
        if not (table := self._table().to_html()):
            return f"<p>{escape_html(self.to_text(), 2000)}</p>"
        return f"{table}<p>{escape_html(self.note, 500)}</p>" if self.note else table

    def _repr_html_(self) -> str:
        return self.to_html()

    __repr__ = to_text


def contest(path: str | Path | None = None) -> ContestTable:
    """Return the contest of the course: the cheapest rules that keep all facts of `billing`.

    An entry counts if it keeps fifteen of fifteen facts until the last turn begins, takes at most
    5 % of what is needed later out of sight, and fits the window. `contest().enter(name, rules)`
    enters one. The table is practice: `ctxkit.course.mark` judges entries on sessions that nobody
    has seen.

    Args:
        path: a file, or a folder that a class shares, in which each entry has a file of its own;
            None: `.ctxkit/contest.json` where the notebook was opened.

    Returns:
        The table; its display ranks the entries that count by cost, in US dollars.

    Example:
        >>> import tempfile
        >>> import ctxkit as ck
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     contest = ck.contest(f"{folder}/contest.json")
        >>> type(contest).__name__
        'ContestTable'
    """
    return ContestTable(Path(path) if path else get_notebook_folder() / _FILE)


def _describe(entry: ContestEntry) -> str:
    return entry.why or f"costs ${entry.cost_usd:.2f}"


def _make_row(entry: ContestEntry, *, best: bool) -> tuple[Cell, ...]:
    tone = "good" if best else ("grey" if entry.why else "")
    return (
        Cell(f"{entry.name} ({entry.by})" if entry.by else entry.name, tone=tone),
        Cell(entry.rules),
        Cell(f"${entry.cost_usd:.2f}", entry.cost_usd, tone=tone),
        Cell(f"{entry.kept_n} of {entry.facts_n}", entry.kept_n),
        Cell(f"{entry.needed_later_loss:.1%}", entry.needed_later_loss),
        Cell(f"{entry.peak_tokens:,}", entry.peak_tokens),
        Cell(f"{entry.compactions_n}", entry.compactions_n),
        Cell(entry.why or ("the best so far" if best else "yes"), tone=tone),
    )
