"""Arguments, options and output of the commands: session look-up, tables that fit the screen,
JSON, HTML pages.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click
import msgspec
from click.shell_completion import CompletionItem

from ctxkit._internal.formatting_and_sanitizing import (
    format_percent,
    pluralize,
    sanitize_line,
    sanitize_redacted_text,
    sanitize_text,
)
from ctxkit._internal.redaction import redact_json
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pandas as pd

    from ctxkit.cli.session_index import IndexedLogFile, IndexedSession, SessionIndex
    from ctxkit.session.session import Session


LAST_WORD = "last"
"""The session that was written to last."""
NO_SESSION = (
    "No session of a known tool is on this machine: give the path of a log, or see a bundled one"
    " with `ctxkit demo`."
)
_MIN_PREFIX = 4
"""Characters of an id or a title that are enough to mean it."""
_MAX_LISTED = 5


class CompletableParamType(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has none
    """An argument of the command line with completions for the shell."""

    def __init__(self, name: str, offered: Callable[[str], list[CompletionItem]]) -> None:
        self.name = name
        self._offered = offered

    def shell_complete(
        self,
        ctx: Any,  # noqa: ARG002
        param: Any,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return what begins so."""
        return self._offered(incomplete)


def _complete_sessions(incomplete: str) -> list[CompletionItem]:
    """Return sessions that were listed before, by id; files are left to the shell."""
    from ctxkit.cli.session_index import SessionIndex

    titles_by_id = [
        (s.id, s.title) for log in SessionIndex().list_files() for s in log.sessions or ()
    ]
    items = [CompletionItem(i, help=t) for i, t in titles_by_id if i.startswith(incomplete)][:50]
    return [*items, CompletionItem(incomplete, type="file")]


def _complete_presets(incomplete: str) -> list[CompletionItem]:
    from ctxkit.presets.registry_and_setting_checks import names

    return [CompletionItem(n) for n in ("all", *names()) if n.startswith(incomplete)]


SESSION_WORD, RULES_WORD = (
    CompletableParamType("session", _complete_sessions),
    CompletableParamType("rules", _complete_presets),
)


def resolve_session(word: str, index: SessionIndex | None = None) -> Session:
    """Return the session that a word names.

    Args:
        word: a path, an id or its beginning, a title, or `last`.
        index: the index of sessions; None: it is read from the cache folder.

    Returns:
        The session, read from its file.

    Raises:
        BadArguments: no session is called that, or several are; the sentence names them.
        ReadError: its file cannot be read.
    """
    return open_session(*locate_session(word, index))


def locate_session(
    word: str, index: SessionIndex | None = None
) -> tuple[str, IndexedSession | None]:
    """Return the path that an argument names, and the session's index entry; no log is read.

    Args:
        word: a path, an id or its beginning, a title, or `last`.
        index: the index of sessions; None: it is read from the cache folder.

    Returns:
        The path, and None where the path holds several sessions.
    """
    from ctxkit.cli.session_index import SessionIndex, stat_log_file

    index = index or SessionIndex()
    if not is_path(word):
        log, indexed = find_indexed_session(word, index)
        return log.path, indexed
    sessions = index.look_up(stat_log_file(word)).sessions or ()
    # a path with several sessions does not say which is meant: nothing is known of it yet
    return word, sessions[0] if len(sessions) == 1 else None


def open_session(path: str, indexed: IndexedSession | None) -> Session:
    """Return the session of a log: the one that the list names, else the only or main one.

    Args:
        path: path of a log.
        indexed: the list's entry of the session that is meant; None, or one whose id is not in the
            log any more: the only or main session.

    Returns:
        The session, read from its file.
    """
    from ctxkit.formats.reading import read, read_all

    if indexed is not None:
        for session in read_all(path, progress=False):
            if session.id == indexed.id:
                return session
    return read(path)


def is_path(word: str) -> bool:
    """Return whether a word is meant as a path: something is there, or it has a separator.

    Args:
        word: an argument of the command line.

    Returns:
        False for an id or a title, also where no session has it.
    """
    return os.sep in word or Path(word).expanduser().exists()


def find_indexed_session(
    word: str, index: SessionIndex | None = None
) -> tuple[IndexedLogFile, IndexedSession]:
    """Find a session in the index by its id, the beginning of its id, or its title.

    What was listed before is asked first; only where nothing fits, the others are read.

    Args:
        word: an id, the beginning of one, or a title.
        index: the index of sessions; None: it is read from the cache folder.

    Returns:
        The file, and the session in it.

    Raises:
        BadArguments: none or several sessions are meant; the sentence lists them.
    """
    from ctxkit.cli.session_index import SessionIndex, list_log_files

    index, files = index or SessionIndex(), list_log_files()
    if word == LAST_WORD:
        # a generator: files are read one by one until the first one holds a session
        newest = (
            (log, s) for f in files for log in index.read_files([f]) for s in log.sessions or ()
        )
        matches = list(islice(newest, 1))
    else:
        paths = {f.path for f in files}
        # files at known places first, then those that were read at other places before
        indexed_files = [index.look_up(f) for f in files] + [
            e for e in index.list_files() if e.path not in paths
        ]
        matches = _match_sessions(word, indexed_files) or _match_sessions(
            word, index.read_files(files)
        )
    index.save()
    if len(matches) == 1:
        return matches[0]
    if not matches and word == LAST_WORD:
        raise BadArguments(describe_files_without_sessions(len(files)) if files else NO_SESSION)
    if not matches:
        ids = [s.id for log in index.list_files() for s in log.sessions or ()]
        raise BadArguments(
            f"No file and no session is called {sanitize_line(word, 80)!r}: `ctxkit list` shows "
            "those of "
            f"this machine.{did_you_mean(word, ids)}"
        )
    listed = "; ".join(
        f"{sanitize_line(s.id, 40)} ({sanitize_line(s.title or log.path, 60)})"
        for log, s in matches[:_MAX_LISTED]
    )
    raise BadArguments(
        f"{len(matches)} sessions are meant by {sanitize_line(word, 80)!r}: {listed}. Say more of "
        "the id, "
        "or give the path."
    )


def describe_files_without_sessions(count: int) -> str:
    """Say that known tools have files here, but that none of them is a session."""
    return (
        f"Known tools have {pluralize(count, 'file')} on this machine, but none is a session that a"
        " reader knows: `ctxkit list` says why."
    )


def _match_sessions(
    word: str, logs: Iterable[IndexedLogFile]
) -> list[tuple[IndexedLogFile, IndexedSession]]:
    """Return the sessions of that id; else of that title, else whose id or title has it in it."""
    pairs = [(log, s) for log in logs for s in log.sessions or ()]
    folded = word.casefold()
    # from exact to vague: the first test that some session passes decides
    tests: list[Callable[[IndexedSession], bool]] = [
        lambda s: s.id == word,
        lambda s: (s.title or "").casefold() == folded,
    ]
    if len(word) >= _MIN_PREFIX:
        tests += [
            lambda s: s.id.startswith(word),
            lambda s: folded in (s.title or "").casefold(),
        ]
    return next((matches for test in tests if (matches := [e for e in pairs if test(e[1])])), [])


_SPANS = {"h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(r"(\d{1,5})([hdw])")


def add_json_and_html_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json` and `--html` to a command, which gets a `CommandOutput` as `out`.

    Args:
        command: function of a click command.

    Returns:
        The function with two more options.

    Raises:
        click.UsageError: raised by the command if both options are given.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.option(
        "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page to a file."
    )
    @wraps(command)
    def with_output(*args: Any, as_json: bool, html: Path | None, **more: Any) -> Any:
        if as_json and html is not None:
            raise click.UsageError("Give --json or --html, not both.")
        return command(CommandOutput(json=as_json, html=html), *args, **more)

    return with_output


class SinceParamType(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has none
    """A day, a moment, or so long ago."""

    name = "when"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return seconds since 1970."""
        if isinstance(value, float):
            return value
        span = _SPAN.fullmatch(value)
        if span:
            return time.time() - int(span[1]) * _SPANS[span[2]]
        try:
            return datetime.fromisoformat(value).timestamp()  # of the local time, as it is shown
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value!r} is no time: give a day as 2026-08-31, or 12h, 7d, 2w.", param, ctx
            )


since_option = click.option(
    "--since", type=SinceParamType(), help="Only from then on: 2026-08-31, 12h, 7d, 2w."
)
project_option = click.option("--project", help="Only of projects with this in their name.")


def _check_tool(ctx: Any, param: Any, value: str | None) -> str | None:
    """Refuse a tool that nobody knows, which would be answered with nothing."""
    from ctxkit.formats.log_discovery import LOG_LOCATIONS

    names = {place.tool for place in LOG_LOCATIONS}
    if value is None or value in names:
        return value
    from ctxkit.formats.registry import format_names

    names.update(format_names())
    if value not in names:
        hint = did_you_mean(value, names) or f" Known are {', '.join(sorted(names))}."
        raise click.BadParameter(f"there is no tool {value!r}.{hint}", ctx, param)
    return value


tool_option = click.option(
    "--tool", callback=_check_tool, help="Only of this tool: claude-code, codex, pi, ..."
)
session_argument = click.argument("session", type=SESSION_WORD)
newest_session_argument = click.argument("session", type=SESSION_WORD, default=LAST_WORD)
newest_sessions_argument = click.argument(
    "sessions", type=SESSION_WORD, nargs=-1, callback=lambda _ctx, _param, words: words or ("last",)
)
sessions_argument = click.argument("sessions", type=SESSION_WORD, nargs=-1, required=True)
rules_option = click.option(
    "--rules",
    "-r",
    type=RULES_WORD,
    multiple=True,
    help="A preset (`pi`, `pi:reserve_tokens=8000`), a chain, or `all`; again for more.",
)


max_loss_option = click.option(
    "--max-loss",
    type=click.FloatRange(0, 1),
    help="Share of what was used again that a setting may lose; default: what the record lost.",
)
forecast_option = click.option(
    "--forecast",
    type=click.Path(exists=True, file_okay=False),
    metavar="ARCHIVE",
    help="Keep what this promises in an archive of `ctxkit keep`; see `ctxkit forecasts`.",
)
why_option = click.option("--why", is_flag=True, help="Say what the figures rest on, too.")


def resolve_sessions(words: Sequence[str]) -> list[Session]:
    """Return the sessions that words name; a folder or a glob means all that are below it.

    Raises:
        BadArguments: none is called that.
        ReadError: a file cannot be read.
    """
    from ctxkit.formats.sessions_from_arguments import as_sessions
    from ctxkit.session.session import with_unique_ids

    out: list[Session] = []
    for word in words:
        # a pattern need not exist as a path, and no id or title is looked up for it
        globbed = any(c in word for c in "*?[")
        out += as_sessions(word) if is_path(word) or globbed else [resolve_session(word)]
    if not out:
        raise BadArguments("There is no session at these places.")
    return with_unique_ids(out)


CellKind = Literal["text", "count", "usd", "share", "yes", "when"]
TableRow = dict[str, Any]
DEFAULT_WIDTH = 80
"""Columns of a table where the width of the screen is unknown, as in a pipe."""


class TableColumn(NamedTuple):
    """A column of a table: which figure, under what head, and how it is written."""

    key: str
    title: str
    kind: CellKind = "text"
    wide: bool = False
    """True if it takes the remaining width, and is shortened if that is too small."""
    most: int | None = None
    """At most so many characters."""


SESSIONS_COLUMN = TableColumn("sessions_n", "sessions", "count")
CALLS_COLUMN = TableColumn("calls_n", "calls", "count")
PROMPTS_COLUMN = TableColumn("prompt_tokens", "prompts", "count")
PEAK_COLUMN = TableColumn("peak_tokens", "peak", "count")
COST_COLUMN = TableColumn("cost_usd", "cost", "usd")


@dataclass(frozen=True)
class CommandOutput:
    """Output of a command: the screen, JSON on stdout, or an HTML page."""

    json: bool = False
    html: Path | None = None

    def table(
        self,
        title: str,
        heads: Sequence[TableColumn],
        rows: Iterable[TableRow],
        notes: Sequence[str] = (),
    ) -> None:
        """Write rows as the user asked for: as JSON, an HTML page, or a table on the screen.

        Args:
            title: title of the page.
            heads: columns of page and screen.
            rows: values by key; JSON has all of them.
            notes: sentences below the table.
        """
        rows = list(rows)
        if self.json:
            print_json(rows)
        elif self.html is not None:
            self.page(self.html, title, heads, rows, notes)
        else:
            print_table(heads, rows, notes)

    def page(
        self,
        path: Path,
        title: str,
        heads: Sequence[TableColumn],
        rows: list[TableRow],
        notes: Sequence[str],
    ) -> None:
        """Write the rows as one HTML file that opens offline.

        Args:
            path: the file.
            title: title of the page.
            heads: columns of the table.
            rows: values by key.
            notes: sentences below the table.
        """
        from ctxkit.widgets.reports.html_page import (
            PageSection,
            render_page,
            render_sentence_list,
            render_table,
        )

        numbers = frozenset(i for i, h in enumerate(heads) if h.kind not in ("text", "when"))
        cells = [[format_value(r.get(h.key), h.kind) for h in heads] for r in rows]
        body = render_table(
            [h.title for h in heads], cells, numbers=numbers
        ) + render_sentence_list(notes)
        write_and_announce_file(path, render_page(title, "", [PageSection("", body)], plotly=False))


def write_and_announce_file(path: Path, text: str) -> None:
    """Write a file that the user named, and print its path to standard error.

    Args:
        path: the file; an existing one is replaced.
        text: its content.
    """
    from ctxkit._internal.safe_files import write_file_atomically

    write_file_atomically(path, [text.encode("utf-8", "replace")])
    print_to_stderr(f"written: {path}")


def print_to_stderr(sentence: str) -> None:
    """Tell the user something that is no part of the answer.

    Args:
        sentence: printed to stderr, so that stdout holds the answer alone.
    """
    sys.stderr.write(f"{sanitize_text(sentence, 2000)}\n")


def print_json(value: Any) -> None:
    """Print a value as JSON without secrets: what is missing is null, times are ISO 8601.

    Args:
        value: dictionaries, lists, texts, numbers, times and missing values.
    """
    redacted = redact_json(_to_plain(value))
    # without `indent` the encoder in C runs, which takes a fifth of the time
    text = json.dumps(redacted, ensure_ascii=True, allow_nan=False, default=str)
    sys.stdout.write(msgspec.json.format(text, indent=1) + "\n")


def convert_frame_to_records(frame: pd.DataFrame) -> list[TableRow]:
    """Return the rows of a frame as dictionaries, None where a figure is missing.

    Args:
        frame: any frame; its index is left out.

    Returns:
        A dictionary of plain Python values for each row.
    """
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(k): _to_plain(v) for k, v in row.items()} for row in rows]


def get_screen_width() -> int:
    """Return the columns of the screen; 80 in a pipe."""
    import shutil

    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def print_table(
    heads: Sequence[TableColumn], rows: Sequence[TableRow], notes: Sequence[str] = ()
) -> None:
    """Print a table no wider than the screen, and sentences below it.

    Args:
        heads: key, title and kind of each column.
        rows: values by key; a missing one is an empty cell.
        notes: sentences.
    """
    # widths depend on all cells, so everything is written as text first
    cells = [[format_value(r.get(h.key), h.kind) for h in heads] for r in rows]
    if cells:
        widths = compute_column_widths(heads, cells, get_screen_width())
        _print_row(heads, [h.title for h in heads], widths)
        sys.stdout.write("  ".join("─" * n for n in widths) + "\n")
        for row in cells:
            _print_row(heads, row, widths)
    for note in notes:
        print_wrapped_lines(note)


def _print_row(heads: Sequence[TableColumn], row: Sequence[str], widths: Sequence[int]) -> None:
    fitted = [
        cut_and_pad_text(cell, n, is_left_aligned=head.kind in ("text", "when"))
        for head, cell, n in zip(heads, row, widths, strict=True)
    ]
    sys.stdout.write("  ".join(fitted).rstrip() + "\n")


def compute_column_widths(
    heads: Sequence[TableColumn], cells: Sequence[Sequence[str]], width: int
) -> list[int]:
    """Return the width of each column: that of its cells; a wide column gets what is left.

    Args:
        heads: the columns; one whose `wide` is set is cut to fit the screen.
        cells: the texts of each row.
        width: width of the screen in terminal cells.

    Returns:
        Terminal cells per column.
    """
    needed = [
        max(map(count_terminal_cells, (head.title, *(row[i] for row in cells))))
        for i, head in enumerate(heads)
    ]
    fixed = [min(n, h.most or n) for n, h in zip(needed, heads, strict=True)]
    others = sum(n for n, h in zip(fixed, heads, strict=True) if not h.wide)
    # two blanks are between columns; the wide one has 8 cells even on a narrow screen
    left = max(width - others - 2 * (len(heads) - 1), 8)
    return [min(n, left) if h.wide else n for n, h in zip(fixed, heads, strict=True)]


def print_wrapped_lines(text: str) -> None:
    """Print lines no wider than the screen: those of a table are cut, sentences are wrapped.

    Args:
        text: lines that begin with a blank are rows of a table.
    """
    import textwrap

    width = get_screen_width()
    for line in sanitize_redacted_text(text).splitlines():  # its parts are sanitized
        if line.startswith(" ") or not line:
            sys.stdout.write(cut_and_pad_text(line.rstrip(), width) + "\n")
        else:
            wrapped = textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
            sys.stdout.write("\n".join(wrapped) + "\n")


def count_terminal_cells(text: str) -> int:
    """Return how many cells of a terminal a text takes; some characters take two, some none."""
    if text.isascii():
        return len(text)
    from wcwidth import wcwidth

    return sum(max(wcwidth(c), 0) for c in text)


def cut_and_pad_text(text: str, width: int, *, is_left_aligned: bool | None = None) -> str:
    """Return a text of at most `width` terminal cells; a longer one ends in an ellipsis.

    Args:
        text: one line.
        width: number of cells.
        is_left_aligned: pad on the right (True) or on the left (False); None: do not pad.
    """
    if count_terminal_cells(text) > width:
        # one cell is for the ellipsis; a character of two cells may leave one unused
        characters, left_cells = [], width - 1
        for character in text:
            left_cells -= count_terminal_cells(character)
            if left_cells < 0:
                break
            characters.append(character)
        text = "".join(characters) + "…"
    padding = "" if is_left_aligned is None else " " * (width - count_terminal_cells(text))
    return text + padding if is_left_aligned else padding + text


def format_value(value: Any, kind: CellKind) -> str:
    """Return a value as text for a table; a missing one is empty.

    Args:
        value: the value; None and NaN are missing.
        kind: kind of the column, such as a count or dollars.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return _FORMATTERS[kind](value)


def _format_time(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return sanitize_line(str(value), 30)
    when = datetime.fromtimestamp(value, UTC).astimezone()
    recent = datetime.now(UTC) - when < timedelta(days=180)
    return when.strftime("%m-%d %H:%M" if recent else "%Y-%m-%d")


def _format_usd(value: float) -> str:
    small = 0 < abs(value) < 0.01
    return f"${value:,.4f}" if small else f"${value:,.2f}"


_FORMATTERS: dict[CellKind, Callable[[Any], str]] = {
    "text": lambda v: sanitize_line(str(v), 200),
    "count": lambda v: f"{v:,.0f}" if v == int(v) else f"{v:,.1f}",
    "usd": _format_usd,
    "share": lambda v: format_percent(v, 1),
    "yes": lambda v: "yes" if v else "no",
    "when": _format_time,
}


def _to_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(v) for v in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    # scalars of numpy; what is not finite is no JSON
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_text_or_write_html(out: CommandOutput, title: str, answer: Any, **options: bool) -> None:
    """Print what has `to_text` and HTML, or write it as a page.

    Args:
        out: the form and place of the output.
        title: title of the page.
        answer: a value with `to_text`, and `to_html` or `_repr_html_`.
        options: arguments of `to_text`.
    """
    if out.html is None:
        print_wrapped_lines(answer.to_text(**options))
        return
    from ctxkit.widgets.reports.html_page import PageSection, render_page

    html = answer.to_html() if hasattr(answer, "to_html") else answer._repr_html_()
    section = PageSection("", html)
    write_and_announce_file(out.html, render_page(title, "", [section], plotly=False))


def write_and_announce_forecast(archive: str, rules: str, source: str) -> None:
    """Write a forecast of an archive's next sessions into the archive, and say so on stderr.

    Args:
        archive: folder of sessions.
        rules: a preset or a chain with a trigger, as text, or "recorded".
        source: origin of the forecast; empty: none.
    """
    from ctxkit.experiments.next_session_forecasts_and_outcomes import write_forecast

    forecasts = write_forecast(archive, rules, source=source)
    print_to_stderr(f"{pluralize(len(forecasts), 'forecast')} under {rules} written to {archive}.")
