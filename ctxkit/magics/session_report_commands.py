"""`%context` subcommands that show or load sessions: status, list, turns, reports, use, export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_change,
    format_count,
    format_percent,
    pluralize,
    sanitize_line,
)
from ctxkit._internal.safe_files import expand_home
from ctxkit.magics.line_parser import option_field, positional_field
from ctxkit.magics.subcommand_dispatch import PreformattedText, Subcommand
from ctxkit.session.compactions_and_prunings import count_compactions
from ctxkit.session.messages import Edit
from ctxkit.tokens.live_prompt_sizes import find_call_of_current_size

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from ctxkit._internal.tables import Table
    from ctxkit.agent.event_snapshot_and_report_files import ContextReportStore
    from ctxkit.magics.kernel_sessions import KitState
    from ctxkit.metrics.context_window_report import ContextReport
    from ctxkit.metrics.cost.spend_by_turn_tool_file import Spend
    from ctxkit.plots.chart import Chart
    from ctxkit.session.session import Session


@dataclass(frozen=True)
class SessionArguments:
    """A line that names a session."""

    session: str | None = option_field("another session than the active one", completes="session")


@dataclass(frozen=True)
class LiveSessionArguments:
    """A line that names a live session."""

    session: str | None = option_field(
        "another live session than the current one", completes="session"
    )


@dataclass(frozen=True)
class TurnsArguments(SessionArguments):
    """The line of `%context turns`."""

    follow: bool = option_field(
        default=False, help="a live session's own frame, which has a row more after each turn"
    )
    reports: bool = option_field("the reports that were kept, one a turn", default=False)
    chart: bool = option_field("the chart of cumulative input by agent", default=False)


@dataclass(frozen=True)
class EmptyArguments:
    """A line without words."""


def list_turns(kit: KitState, options: TurnsArguments) -> pd.DataFrame | Chart:
    """One row a turn, with the columns of `ctxkit.frame(per="turn")`; followed, it grows with the
    session.

    It is shown as an exported page shows it.
    """
    if options.chart:
        from ctxkit.plots import budget

        return budget(kit.session(options.session))
    if options.reports:
        return list_stored_reports(kit, StoredReportListArguments(session=options.session))
    if options.follow:
        return kit.lives.get(options.session).turns
    from ctxkit.widgets.reports.session_summary import tabulate_turns

    return _session_frame(kit, options, "turn", tabulate_turns)


def list_compactions(kit: KitState, options: SessionArguments) -> pd.DataFrame:
    """One row a compaction, with the columns of `ctxkit.frame(per="compaction")`, shown as in an
    exported page.
    """
    from ctxkit.widgets.reports.session_summary import tabulate_compactions

    return _session_frame(kit, options, "compaction", tabulate_compactions)


def show_spending(kit: KitState, options: SessionArguments) -> Spend:
    """Show the cost of a session by turn, tool, file and cache."""
    from ctxkit.metrics.cost.spend_by_turn_tool_file import spend

    return spend(kit.session(options.session))


def list_sessions(kit: KitState, _: EmptyArguments) -> pd.DataFrame:
    """Return one row per session of this kernel, indexed by name."""
    import pandas as pd

    from ctxkit._internal.data_frame_display import with_display
    from ctxkit.metrics.frames import frame
    from ctxkit.widgets.reports.session_summary import tabulate_sessions

    names, active = list(kit.sessions), kit.sessions.active_name
    registry = [s for _, s in kit.sessions.items()]
    counts = frame(registry, per="session")
    columns = {
        "active": [name == active for name in names],
        "format": [sanitize_line(s.format, 40) for s in registry],
        **{name: counts[name].array for name in ("messages_n", "calls_n", "compactions_n")},
        "title": [sanitize_line(s.title or "", 60) for s in registry],
        "file": [sanitize_line(s.path_ or "", 200) for s in registry],
    }
    table = pd.DataFrame(columns, index=pd.Index(names, name="session", dtype="object"))
    called = [f"{name} (active)" if name == active else name for name in names]
    return with_display(
        table, tabulate_sessions(registry, len(registry), [sanitize_line(n, 60) for n in called])
    )


def _session_frame(
    kit: KitState, options: SessionArguments, per: str, make_table: Callable[[Session], Table]
) -> pd.DataFrame:
    from ctxkit._internal.data_frame_display import with_display
    from ctxkit.metrics.frames import frame

    session = kit.session(options.session)
    return with_display(sanitize_text_columns(frame(session, per=per)), make_table(session))


def sanitize_text_columns(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its texts, which come from a log, sanitised for terminals and pages.

    Args:
        table: a frame with any columns.

    Returns:
        A copy: control characters are removed, and each text is cut to 200 characters.
    """
    import pandas as pd

    out = table.copy()
    for name in out.columns:
        if pd.api.types.is_string_dtype(out[name].dtype) or out[name].dtype == object:
            out[name] = (
                out[name]
                .map(lambda v: sanitize_line(v, 200) if isinstance(v, str) else v)
                .astype(out[name].dtype)
            )
    return out


_STYLE = "color:var(--jp-content-font-color1,inherit);line-height:1.5"
_NUMBER_STYLE = "text-align:right;padding:0 12px 0 0"
_WORD_STYLE = "text-align:left;padding:0 12px 0 0"


@dataclass(frozen=True)
class CallArguments(SessionArguments):
    """The line of a view."""

    call: int | None = option_field(
        "number of the call, from 0; negatives count from the end (without it the last one)"
    )


@dataclass(frozen=True)
class StatusArguments(CallArguments):
    """The line of `%context status`."""

    count: bool = option_field(
        "ask the provider how many tokens the next prompt has", default=False
    )


@dataclass(frozen=True)
class WindowPartListArguments(CallArguments):
    """The line of `%context list`."""

    user: bool = option_field("what the user sees, and what of it the agent sees", default=False)


@dataclass(frozen=True)
class FullReportArguments(CallArguments):
    """The line of `%context detail`."""

    kept: str | None = option_field("a report that was kept, by its id, or `last`")


@dataclass(frozen=True, repr=False)
class ContextStatus:
    """The context in one line, then one line a group, then the largest messages; `report` has all
    of it.
    """

    report: ContextReport
    compactions: int | None
    """Compactions before the call; None: the format of the log cannot tell of one."""
    largest: int

    @property
    def one_line(self) -> str:
        """`Context: 16k/32k (50 %) · Compactions: 2`."""
        r = self.report
        unsure = "" if r.prompt_source == "recorded" else f" · {r.prompt_source}"
        size = f"{_short_number(r.prompt_tokens)}, window unknown"
        if r.limit is not None and r.full is not None:
            used, limit = _short_number(r.prompt_tokens), _short_number(r.limit)
            size = f"{used}/{limit} ({format_percent(r.full)})"
        if not r.is_known:
            size, unsure = "unknown, the log has counts of whole turns alone", ""
        return f"Context: {size} · Compactions: {format_count(self.compactions)}{unsure}"

    def rows(self) -> list[tuple[str, str, str]]:
        """Return tokens, share and name of each group, then of the largest messages."""
        whole = max(self.report.prompt_tokens, 1)
        named = list(self.report.groups().items())
        largest = self.report.contributors[: self.largest]
        named += [(sanitize_line(c.name, 80), c.tokens) for c in largest]
        return [(f"{n:,}", format_percent(n / whole), name) for name, n in named]

    def __repr__(self) -> str:
        groups = len(self.report.groups())
        lines = [f"{n:>9}  {share:>4}  {name}" for n, share, name in self.rows()]
        largest = (
            [_largest_messages_heading(len(lines) - groups), *lines[groups:]]
            if len(lines) > groups
            else []
        )
        return "\n".join([self.one_line, self._where(), *lines[:groups], *largest])

    def _repr_html_(self) -> str:
        groups, rows = len(self.report.groups()), [_html_row(*row) for row in self.rows()]
        largest = (
            _html_table(_largest_messages_heading(len(rows) - groups), rows[groups:])
            if len(rows) > groups
            else ""
        )
        head = f"<strong>{escape_html(self.one_line)}</strong><br>{escape_html(self._where())}"
        box = f'<div class="{NO_MATHJAX}" style="{_STYLE}">'
        return f"{box}{head}{_html_table('', rows[:groups])}{largest}</div>"

    def _where(self) -> str:
        r = self.report
        at = "before the next call" if r.call is None else f"at call {r.call}, turn {r.turn}"
        return " · ".join(
            [
                sanitize_line(r.title or r.session, 60),
                at,
                *([sanitize_line(r.model, 60)] if r.model else []),
            ]
        )


def show_context_status(
    kit: KitState, options: StatusArguments
) -> ContextStatus | PreformattedText:
    """Return the context of the active session in short."""
    if options.count:
        return count_next_prompt_tokens(kit, options)
    return _make_status(kit, options)


def _make_status(kit: KitState, options: CallArguments) -> ContextStatus:
    session, report = kit.session(options.session), make_context_report(kit, options)
    stop = len(session.path) if report.call is None else session.call(report.call).position
    return ContextStatus(report, count_compactions(session, stop), kit.contributors)


def list_window_parts(kit: KitState, options: WindowPartListArguments) -> pd.DataFrame:
    """Return one row per section of the window."""
    if options.user:
        return list_user_visible_messages(kit, options)
    from ctxkit._internal.data_frame_display import (
        DisplayColumn,
        FramePreviewRenderer,
        with_display,
    )

    report = make_context_report(kit, options)
    columns = ["part", "name", "tokens", "share", "messages_n", "source"]
    text = (
        *(DisplayColumn("part", "part"), DisplayColumn("name", "name")),
        *(DisplayColumn("tokens", "tokens", "count"), DisplayColumn("share", "share", "share")),
        DisplayColumn("messages_n", "messages", "count"),
        DisplayColumn("source", "source", hover="of the tokens", spare=True),
    )
    sentence = _make_status(kit, options).one_line
    return with_display(
        sanitize_text_columns(report.frame()[columns]), FramePreviewRenderer(text, sentence)
    )


def list_user_visible_messages(kit: KitState, options: SessionArguments) -> pd.DataFrame:
    """Return one row per message that the user sees, and whether the agent sees it."""
    from ctxkit._internal.data_frame_display import (
        DisplayColumn,
        FramePreviewRenderer,
        with_display,
    )
    from ctxkit.metrics.frames.per_message import audience as of

    table = of(kit.session(options.session))
    seen = table[table["user_sees"]].drop(columns=["session", "id", "user_sees"])
    text = (
        *(DisplayColumn("position", "message", "message"), DisplayColumn("role", "role")),
        *(DisplayColumn("tool", "tool"), DisplayColumn("kind", "kind")),
        DisplayColumn("agent_sees", "agent sees", "yes"),
        *(DisplayColumn("chars", "characters", "count"), DisplayColumn("text", "text")),
    )
    return with_display(
        sanitize_text_columns(seen.set_index("position")),
        FramePreviewRenderer(text, _describe_audience),
    )


def _describe_audience(table: pd.DataFrame) -> str:
    gone = int((~table["agent_sees"]).sum())
    return f"The user sees {pluralize(len(table), 'message')}; the agent no longer sees {gone:,}."


def show_full_report(kit: KitState, options: FullReportArguments) -> ContextReport:
    """Return the full report of a call, or a stored one."""
    if options.kept is None:
        return make_context_report(kit, options)
    report_id = "" if options.kept == "last" else options.kept
    return show_stored_report(kit, StoredReportArguments(id=report_id, session=options.session))


def make_context_report(kit: KitState, options: CallArguments) -> ContextReport:
    """Return the whole report."""
    from ctxkit.metrics.context_window_report import report

    session = kit.session(options.session)
    if options.call is not None:
        return report(session, options.call)
    if session.prompt_source is not None and session.format != "replay":
        return report(session, find_call_of_current_size(session))
    after = session.path[session.calls[-1].position + 1 :] if session.calls else ()
    compacted = any(
        isinstance(e, Edit) for e in after
    )  # since the last call: what comes next is another prompt
    return report(session, None if compacted or not session.calls else -1)


def _short_number(n: int) -> str:
    # From 999,500 on, thousands would round to 1000k.
    return f"{n / 1e6:.1f}M" if n >= 999_500 else f"{n / 1000:.0f}k" if n >= 1000 else str(n)


def _largest_messages_heading(n: int) -> str:
    return f"the {n} largest messages" if n > 1 else "the largest message"


def _html_row(tokens: str, share: str, name: str) -> str:
    cells = f'<td style="{_NUMBER_STYLE}">{tokens}</td><td style="{_NUMBER_STYLE}">{share}</td>'
    return f'<tr>{cells}<td style="{_WORD_STYLE}">{escape_html(name, 120)}</td></tr>'


def _html_table(caption: str, rows: list[str]) -> str:
    rows_html = (
        f'<caption style="text-align:left">{escape_html(caption)}</caption>' if caption else ""
    )
    heads = "".join(
        f'<th scope="col" style="{s}">{h}</th>'
        for s, h in ((_NUMBER_STYLE, "tokens"), (_NUMBER_STYLE, "share"), (_WORD_STYLE, "part"))
    )
    return (
        f"<table>{rows_html}<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


FILL_TASK, TIME_TASK = "What fills the window", "Over time, and what it cost"
SESSIONS_TASK = "Sessions and files"
VIEW_SUBCOMMANDS = (
    Subcommand(
        "status",
        "How full the window is, and in short what fills it.",
        StatusArguments,
        show_context_status,
        FILL_TASK,
    ),
    Subcommand(
        "list",
        "What fills the window at a call, one line per section.",
        WindowPartListArguments,
        list_window_parts,
        FILL_TASK,
    ),
    Subcommand(
        "detail",
        "The whole report of a call, with its largest messages.",
        FullReportArguments,
        show_full_report,
        FILL_TASK,
    ),
    Subcommand(
        "user",
        "What the user sees: `%context list --user`.",
        SessionArguments,
        list_user_visible_messages,
        FILL_TASK,
        hidden=True,
    ),
)


@dataclass(frozen=True)
class StoredReportListArguments(SessionArguments):
    """The line of `%context reports`."""

    limit: int = option_field("how many, the newest", default=20)


@dataclass(frozen=True)
class StoredReportArguments(SessionArguments):
    """The line of `%context report`."""

    id: str = positional_field("its id, as `%context reports` has it", default="")


def list_stored_reports(kit: KitState, options: StoredReportListArguments) -> pd.DataFrame:
    """Return one row per stored report, the newest first."""
    import pandas as pd

    reports = _get_report_store(kit, options.session).all()[::-1]
    columns = {
        "ts": [report.time for report in reports],
        "turn": [report.turn for report in reports],
        "call": [report.report.call for report in reports],
        "prompt_tokens": [report.report.prompt_tokens for report in reports],
        "share": [report.report.full for report in reports],
    }
    index = pd.Index([report.id for report in reports], name="report", dtype="object")
    return pd.DataFrame(columns, index=index).head(max(options.limit, 0))


def show_stored_report(kit: KitState, options: StoredReportArguments) -> ContextReport:
    """Return a stored report; without an id the newest."""
    store = _get_report_store(kit, options.session)
    newest = store.all()[-1:] if not options.id else []
    return newest[0].report if newest else store.of(options.id).report


def count_next_prompt_tokens(kit: KitState, options: SessionArguments) -> PreformattedText:
    """Show the tokens of the next prompt by the provider's count and by ctxkit's."""
    from ctxkit.agent.event_loop_threads import run_coroutine
    from ctxkit.agent.models.model import Request

    live = kit.lives.get(options.session)
    ask = getattr(live.agent.model, "count", None)
    messages, tokens = live.agent.compactor.context.preview()
    tools = tuple(t.schema for t in live.agent.tools.values())
    counted = None if ask is None else run_coroutine(ask(Request(messages=messages, tools=tools)))
    name = sanitize_line(live.agent.model.name, 80)
    if not counted:
        return PreformattedText(
            f"{tokens:,} tokens, counted here: {name} gave no count of its own."
        )
    return PreformattedText(
        f"{counted:,} tokens by {name}; {tokens:,} counted here"
        f" ({format_change(tokens / counted - 1, 1)})."
    )


def _get_report_store(kit: KitState, name: str | None) -> ContextReportStore:
    from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace
    from ctxkit.agent.event_snapshot_and_report_files import ContextReportStore

    session_name = name or kit.lives.current_name
    if session_name is not None and session_name in kit.lives:
        return kit.lives.get(session_name).reports
    return ContextReportStore(Workspace(), kit.session(name).id)


TABLE_SUBCOMMANDS = (
    Subcommand("turns", "A table with one row per turn.", TurnsArguments, list_turns, TIME_TASK),
    Subcommand(
        "compactions",
        "A table with one row per compaction; `branch` and `restore` go back before one.",
        SessionArguments,
        list_compactions,
        TIME_TASK,
    ),
    Subcommand(
        "spend",
        "Where the money of a session went, in sentences and tables.",
        SessionArguments,
        show_spending,
        TIME_TASK,
    ),
)
SESSION_SUBCOMMANDS = (
    Subcommand(
        "sessions",
        "The sessions that were read, and which is active; `reset` begins a fresh one.",
        EmptyArguments,
        list_sessions,
        SESSIONS_TASK,
    ),
)


REPORT_SUBCOMMANDS = (
    Subcommand(
        "count",
        "The next prompt, as the provider counts it: `%context status --count`.",
        SessionArguments,
        count_next_prompt_tokens,
        FILL_TASK,
        hidden=True,
    ),
    Subcommand(
        "report",
        "A kept report, whole; without an id the newest: `%context detail --kept ID`.",
        StoredReportArguments,
        show_stored_report,
        FILL_TASK,
        hidden=True,
    ),
    Subcommand(
        "reports",
        "The reports that were kept: `%context turns --reports`.",
        StoredReportListArguments,
        list_stored_reports,
        TIME_TASK,
        hidden=True,
    ),
)


@dataclass(frozen=True)
class UseSessionArguments:
    """The line of `%context use`."""

    what: str = positional_field(
        "a session file, a session read before, or a variable that holds one",
        completes="session path",
    )
    name: str | None = option_field("what to call it from now on", completes="session")
    format: str | None = option_field(
        "read the file as this format instead of looking at its content", completes="format"
    )


@dataclass(frozen=True)
class ExportHtmlArguments(SessionArguments):
    """The line of `%context export`."""

    path: str = positional_field("the HTML file to write", completes="path")


@dataclass(frozen=True)
class ValidateConfigArguments:
    """The line of `%context validate`."""

    path: str = positional_field("a config file of fuseraft, Pi, ai, ...", completes="path")
    system: str | None = option_field("whose file it is, where its keys do not say")


def validate_config_file(_: KitState, options: ValidateConfigArguments) -> PreformattedText:
    """List the faults of a config file, one per line."""
    from ctxkit.experiments.compaction_config_file_validation import validate as of

    table = of(expand_home(options.path), system=options.system)
    rows = [f"{level}: {why}" for level, why in table.itertuples(index=False)]
    return PreformattedText(
        "\n".join(rows) or f"{sanitize_line(options.path, 200)}: nothing is wrong with it."
    )


def use_session(kit: KitState, options: UseSessionArguments) -> Session:
    """Make a session the active one: by its name, from a variable, or from a file."""
    return kit.use(options.what, options.name, options.format)


def export_session_html(kit: KitState, options: ExportHtmlArguments) -> PreformattedText:
    """Write the active session as one HTML file that opens offline."""
    from ctxkit.widgets.reports import export as write

    session = kit.session(options.session)
    path = write(session, expand_home(options.path))
    return PreformattedText(
        f"{sanitize_line(session.id, 60)} is in {path} ({path.stat().st_size / 1e6:.1f} MB): it "
        "opens"
        " without a network."
    )


FILE_SUBCOMMANDS = (
    Subcommand(
        "use",
        "Make a session the active one: a file, a name, a team; `validate` checks a config file.",
        UseSessionArguments,
        use_session,
        SESSIONS_TASK,
    ),
    Subcommand(
        "export",
        "Write the session as one HTML file that opens offline.",
        ExportHtmlArguments,
        export_session_html,
        SESSIONS_TASK,
    ),
    Subcommand(
        "validate",
        "What is wrong with a config file.",
        ValidateConfigArguments,
        validate_config_file,
        SESSIONS_TASK,
        hidden=True,
    ),
)
