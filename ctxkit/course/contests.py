"""The contest of the course (`ctxkit.contest`): entries judged on the sample `billing` and, by
`mark`, on hidden sessions, and the table of entries.
"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal import formatting_and_sanitizing
from ctxkit._internal.formatting_and_sanitizing import escape_html, format_percent, sanitize_line
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.progress_bar import make_progress_bar
from ctxkit._internal.safe_files import SafeFolder
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.course.contest_entry_serialization import (
    MAX_ENTRIES,
    MAX_FILES,
    ContestEntryRules,
    decode_rules,
    encode_rules,
    get_notebook_folder,
    get_user_name,
    read_entries,
    store_entry,
)
from ctxkit.course.generator.billing_service_coding_session import make_session
from ctxkit.course.sample_replays_and_scores import (
    facts_kept,
    load_sample,
    replay_sample,
    score_replay,
)
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.presets.registry_and_setting_checks import resolve_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from ctxkit.presets.registry_and_setting_checks import RulesLike
    from ctxkit.session.session import Session


__all__ = [
    "ALLOWED_LOSS",
    "ContestEntry",
    "ContestTable",
    "contest",
    "judge_rules",
    "mark",
    "score_contest_entry",
]
__dir__ = make_dunder_dir(__all__)


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
    """The file of the entries, or a folder that several users share, one file per entry."""
    note: str = ""
    """A sentence on the last entry if it was not simply added."""

    @staticmethod
    def tried(name: str, rules: RulesLike) -> ContestEntry:
        """Return the figures of rules on `billing`, without entering them; a function may be tried.

        Args:
            name: name of the entry in the result.
            rules: rules, a preset or a function.

        Raises:
            BadArguments: they are no rules.
        """
        return judge_rules(name, rules)

    def enter(self, name: str, rules: RulesLike) -> ContestTable:
        """Enter rules under a name, and return the table with a note of what became of them.

        The file keeps the rules and no figures: the table runs them again. Of two entries of one
        name the better one stays.

        Args:
            name: name of the entry, at most 40 characters.
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
        store_entry(self.path, ContestEntryRules(name=entry.name, rules=data, by=by))
        note = f"{entry.name!r} was replaced: the old one {_describe(old)}." if old else ""
        return replace(self, note=note)

    @property
    def entries(self) -> tuple[ContestEntry, ...]:
        """The entries with their figures on `billing`: those that count first, then by dollars."""
        # a table that is missing, damaged or too large counts as empty
        stored: tuple[ContestEntryRules, ...] = ()
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
        """Describe the best entry: rules, price, risk, and what is unknown."""
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
            f"and {format_percent(best.needed_later_loss, 1)} of what was used again had been taken"
            " away."
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

    An entry counts if it keeps fifteen of fifteen facts until the last turn begins, hides at most 5
    % of the items that are needed later, and fits the window. `contest().enter(name, rules)` enters
    one. The table is for practice: `ctxkit.course.mark` judges entries on sessions that nobody has
    seen.

    Args:
        path: a file, or a folder that a class shares, in which each entry has a file of its own;
            None: `.ctxkit/contest.json` in the notebook's folder.

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
        Cell(format_percent(entry.needed_later_loss, 1), entry.needed_later_loss),
        Cell(f"{entry.peak_tokens:,}", entry.peak_tokens),
        Cell(f"{entry.compactions_n}", entry.compactions_n),
        Cell(entry.why or ("the best so far" if best else "yes"), tone=tone),
    )


_TABLE = "marks.csv"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet takes for a formula."""
_COLUMNS = (
    "place", "name", "by", "file", "rules", "counts", "why", "cost_usd", "kept_facts_n", "facts_n",
    "needed_later_loss", "peak_tokens",
)  # fmt: skip
ALLOWED_LOSS = 0.05
"""Share of what is needed later that an entry may take out of sight."""


@dataclass(frozen=True, kw_only=True)
class ContestEntry:
    """One entry: figures of its replay of a session."""

    name: str
    rules: str
    """The label of the rules."""
    by: str = ""
    """The user of a shared folder who entered it."""
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
            # one digit: 5.2 % is not 5 %
            parts.append(f"loses {format_percent(self.needed_later_loss, 1)}")
        if self.over_window:
            parts.append("runs past the window")
        return ", ".join(parts)

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key of entries: valid ones first, the cheapest on top."""
        return bool(self.why), self.cost_usd


def judge_rules(
    name: str, rules: RulesLike, session: Session | None = None, *, by: str = ""
) -> ContestEntry:
    """Return the figures of rules on a session; None: on the sample `billing`.

    A prompt may be as large as the session's own window, whatever window the rules name.

    Args:
        name: name of the entry, shown in the table.
        rules: rules, a preset or its name.
        session: a recorded session that lists facts (`details["facts"]`).
        by: name of who made the entry.

    Returns:
        Dollars, loss as a share, facts kept and peak in tokens of the replay.

    Raises:
        BadArguments: they are no rules.

    Example:
        >>> entry = judge_rules("nothing is cut", "none")
        >>> entry.kept_n, entry.facts_n, entry.why
        (15, 15, 'runs past the window')
    """
    from ctxkit.engine.replay import replay as replay_session

    resolved = resolve_rules(rules)
    if not isinstance(resolved, Rules):
        raise BadArguments("Give rules: Rules(policy=..., trigger=...), or the name of a preset.")
    record = load_sample() if session is None else session
    replay = replay_session(record, resolved)
    row, facts = score_replay(replay), facts_kept(replay)
    peak = int(row["peak_tokens"])
    return ContestEntry(
        name=sanitize_line(name, 40),
        by=sanitize_line(by, 40),
        rules=sanitize_line(str(row["rules"]), 120),
        cost_usd=float(row["cost_usd"]),
        low_usd=_float_or_none(row["cost_low_usd"]),
        high_usd=_float_or_none(row["cost_high_usd"]),
        real_run_low_usd=_float_or_none(row["real_run_low_usd"]),
        real_run_high_usd=_float_or_none(row["real_run_high_usd"]),
        facts_n=len(facts),
        kept_n=sum(facts.values()),
        needed_later_loss=float(row["needed_later_loss"]),
        peak_tokens=peak,
        compactions_n=int(row["compactions_n"]),
        over_window=peak > (record.context_window or peak),
    )


def score_contest_entry(name: str, data: Any, *, by: str = "") -> ContestEntry:
    """Return the figures of an entry's rules, as a file has them, on the sample `billing`.

    Args:
        name: name of the entry.
        data: the rules as decoded from the file.
        by: name of the user who entered it; empty: unknown.

    Raises:
        BadArguments: the data holds no rules.
    """
    return _judge_text(name, msgspec.json.encode(data), by)


def mark(
    folder: str | Path,
    *,
    seed: int | str | None = None,
    sessions: int = 3,
    progress: bool = True,
) -> pd.DataFrame:
    """Run all entries of a folder again on hidden sessions, and write a table.

    The sessions are made from a seed (`make_session`): the story of `billing` with other names,
    sizes and pauses. Only the rules of an entry are read, so figures that somebody wrote into a
    file change nothing. An entry counts if it counts on each of the sessions.

    Args:
        folder: holds the `contest.json` files that a class handed in, in any subfolder, or is the
            folder that a class shares.
        seed: the lecturer's own seed; None: one is drawn, and is in `attrs["seed"]`.
        sessions: number of sessions to make, 1 to 20.
        progress: show a progress bar where the work takes longer than a second.

    Returns:
        One row an entry, those that count first, the cheapest on top: `place`, `name`, `by`,
        `file`, `rules`, `counts`, `why` (why not, or why it could not be run), `cost_usd` (mean
        dollars), `kept_facts_n` and `facts_n` (of the session on which fewest were kept),
        `needed_later_loss` (share, the largest) and `peak_tokens` (the largest). The same is
        written to `marks.csv` of the folder.

    Raises:
        BadArguments: there is no such folder, or it holds no entry.

    Example:
        >>> import tempfile
        >>> import ctxkit as ck
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     table = ck.contest(f"{folder}/ada.json").enter("ada", "pi")
        ...     marks = ck.course.mark(folder, seed="an example", sessions=1, progress=False)
        >>> marks[["name", "counts"]].values.tolist()
        [['ada', False]]
    """
    import pandas as pd

    place = Path(folder)
    if not place.is_dir():
        raise BadArguments(f"There is no folder {str(folder)!r}: name the one with the entries.")
    if not isinstance(sessions, int) or not 1 <= sessions <= 20:
        raise BadArguments("Give 1 to 20 sessions.")
    seed = secrets.token_hex(4) if seed is None else seed
    hidden = [make_session(f"{seed}/{n}") for n in range(sessions)]
    entries = list(_find_entries(place))
    if not entries:
        raise BadArguments(f"No file of {str(folder)!r} is a contest.json: collect them first.")
    bar = make_progress_bar(entries, desc="entries", unit="entry", disable=not progress)
    rows = [_judge_row(file, entry, hidden) for file, entry in bar]
    table = pd.DataFrame(rows).sort_values(["counts", "cost_usd"], ascending=[False, True])
    # a place is for entries that count
    table["place"] = [n + 1 if ok else None for n, ok in enumerate(table["counts"])]
    table = table.astype({"place": "Int64"})[list(_COLUMNS)].reset_index(drop=True)
    table.attrs["seed"] = str(seed)
    _write_table(place, table)
    return table


# figures are never read from a file: the rules are run again, once in each process
@lru_cache(maxsize=1_000)
def _judge_text(name: str, data: bytes, by: str) -> ContestEntry:
    return judge_rules(name, decode_rules(msgspec.json.decode(data)), by=by)


def _float_or_none(value: object) -> float | None:
    return float(str(value)) if formatting_and_sanitizing.has_value(value) else None


def _find_entries(folder: Path) -> Iterator[tuple[str, ContestEntryRules | str]]:
    """Yield each file with an entry of it, or with the sentence why it cannot be read."""
    for path in sorted(folder.rglob("*.json"))[:MAX_FILES]:
        file = sanitize_line(str(path.relative_to(folder)), 120)
        try:
            entries = read_entries(path)
        except (OSError, msgspec.MsgspecError):
            yield file, "it is no contest.json with rules"
            continue
        yield from ((file, entry) for entry in entries[:MAX_ENTRIES])


def _judge_row(file: str, entry: ContestEntryRules | str, hidden: list[Session]) -> dict[str, Any]:
    if isinstance(entry, str):
        return _make_marks_row(file, "", "", entry)
    try:
        rules = decode_rules(entry.rules)
        results = [judge_rules(entry.name, rules, session, by=entry.by) for session in hidden]
    except CtxkitError as error:
        return _make_marks_row(file, entry.name, entry.by, str(error))
    return _make_marks_row(file, entry.name, entry.by, _first_reason(results), results)


def _first_reason(results: list[ContestEntry]) -> str:
    """Say why it does not count on the first session on which it does not, and on how many."""
    reasons = [each.why for each in results if each.why]
    if not reasons:
        return ""
    return f"{reasons[0]} (on {len(reasons)} of {len(results)} sessions)"


def _make_marks_row(
    file: str, name: str, by: str, why: str, results: list[ContestEntry] | None = None
) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(_COLUMNS)
    row |= {"file": file, "name": sanitize_line(name, 40), "by": sanitize_line(by, 40)}
    row |= {"why": sanitize_line(why, 200), "counts": bool(results) and not why}
    if results:
        worst = min(results, key=lambda each: each.kept_n)
        row |= {
            "rules": worst.rules,
            "cost_usd": sum(each.cost_usd for each in results) / len(results),
            "kept_facts_n": worst.kept_n,
            "facts_n": worst.facts_n,
            "needed_later_loss": max(each.needed_later_loss for each in results),
            "peak_tokens": max(each.peak_tokens for each in results),
        }
    return row


def _write_table(folder: Path, table: pd.DataFrame) -> None:
    import warnings

    texts = table.select_dtypes(include=["object", "string"]).columns
    safe = table.copy()
    for column in texts:
        safe[column] = [_escape_formula(value) for value in table[column]]
    try:
        with SafeFolder(folder.resolve()) as place:
            place.write(_TABLE, (safe.to_csv(index=False).encode(),))
    except OSError as error:
        sentence = f"{_TABLE} was not written ({error.strerror}); the table is what is returned."
        warnings.warn(sentence, UserWarning, stacklevel=3)


def _escape_formula(value: Any) -> Any:
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{value}" if is_formula else value
