"""`ctxkit.report`: the contents of the context window at one call, as value, frame and display."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_change,
    format_message_number,
    format_percent,
    pluralize,
    sanitize_line,
)
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.tables import SCROLL_BOX_CSS
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.frames.frame_column import FLOAT, INT, TEXT, FrameColumn
from ctxkit.metrics.frames.typed_frame_builder import build_frame
from ctxkit.metrics.prompt_composition import (
    DROPPED_UNMARKED,
    GROUPS,
    NOT_IN_LOG,
    NOT_IN_LOG_LATER,
    TOOL_SCHEMAS,
    GroupTokensByCall,
    PromptTextSection,
    count_groups_by_call,
    scale_groups,
    split_message_tokens,
    split_sections,
    split_tokens_by_weight,
)
from ctxkit.metrics.prompt_sizes_and_contents import (
    PromptContents,
    SentMessage,
    get_prompt_contents,
)
from ctxkit.session.messages import Message, Provenance, Text, Thinking, ToolCall
from ctxkit.session.titles import get_title
from ctxkit.session.tool_call_paths_and_descriptions import describe_message, pair_with_calls
from ctxkit.tokens.context_windows import get_context_window
from ctxkit.tokens.message_sizes_from_recorded_prompts import count_schema_chars
from ctxkit.tokens.message_token_counting import count_chars_and_estimate_tokens

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.session.session import ModelCall, Session
    from ctxkit.tokens.token_counters import TokenCounter


__all__ = [
    "GROUPS",
    "ContextReport",
    "Contributor",
    "GroupTokensByCall",
    "PromptContents",
    "PromptTextSection",
    "WindowPart",
    "count_groups_by_call",
    "get_prompt_contents",
    "report",
    "split_sections",
]
__dir__ = make_dunder_dir(__all__)

_MAX_CONTRIBUTORS = 10


@accepts_session
def report(
    session: Session, call: int | None = -1, *, counter: TokenCounter | None = None
) -> ContextReport:
    """Report what fills the context window at a call.

    The parts add up to the prompt that was sent. For a replay or a live session they are those of
    `session.sent(call)`: messages that rules removed are left out, and shortened ones have both
    sizes. For a recorded session, sizes are scaled to recorded usage.

    Args:
        session: any session, the path of a log, or a list of messages.
        call: number of the call, negative from the end; None: the next prompt. For a session
            without calls the report shows the prompt that would be sent.
        counter: counts messages of a record where usage does not give their size; None: the exact
            o200k_base where its vocabulary is installed. It has no effect on replays and live
            sessions, whose messages are counted by the counter of their rules.

    Returns:
        The parts of the window and the largest messages. It displays as text or HTML.

    Raises:
        BadArguments: the session has no such call.

    Example:
        >>> import ctxkit as ck
        >>> window = ck.report(ck.samples.path("billing"))
        >>> sum(window.groups().values()) == window.prompt_tokens
        True
    """
    model_call = None if call is None or (call == -1 and not session.calls) else session.call(call)
    index = None if model_call is None else model_call.index
    contents = get_prompt_contents(session, index, counter)
    parts = _sum_parts(contents.messages)
    if contents.excess:
        parts = _scale_parts(parts, contents.visible - contents.excess)
    for tool, tokens in zip(session.tools, contents.schemas, strict=True):
        parts.append(
            WindowPart(
                TOOL_SCHEMAS, tool.name, tokens, tokens, count_schema_chars(tool), 0, "estimated"
            )
        )
    if contents.rest:
        parts.append(
            WindowPart(NOT_IN_LOG, "", contents.rest, contents.rest, None, 0, contents.source)
        )
    if contents.later:
        parts.append(
            WindowPart(
                NOT_IN_LOG_LATER, "", contents.later, contents.later, None, 0, contents.source
            )
        )
    if contents.is_smaller_than_log:
        difference = f"{contents.excess:,} tokens fewer than shown"
        parts.append(
            WindowPart(DROPPED_UNMARKED, difference, 0, contents.excess, None, 0, contents.source)
        )
    limit, limit_source = _window_at(session, model_call)
    return ContextReport(
        session=session.id,
        call=index,
        turn=None if model_call is None else model_call.turn,
        agent=session.agent if model_call is None else model_call.agent,
        model=_model_at(session, model_call),
        limit=limit,
        limit_source=limit_source,
        prompt_tokens=contents.prompt,
        prompt_source=contents.prompt_source,
        residue=contents.rest,
        excess=contents.excess,
        messages_n=len(contents.messages),
        counter=contents.counter,
        count_error=contents.error,
        parts=tuple(sorted(parts, key=lambda p: (GROUPS.index(p.group), -p.tokens))),
        contributors=_list_contributors(contents.messages, session.cwd),
        notes=session.notes,
        title=get_title(session),
    )


def _sum_parts(messages: tuple[SentMessage, ...]) -> list[WindowPart]:
    """Return the parts of the sent messages, summed by group and name."""
    tokens: Counter[tuple[str, str]] = Counter()
    raw_tokens, chars, messages_n = tokens.copy(), tokens.copy(), tokens.copy()
    estimated: set[tuple[str, str]] = set()
    for sent in messages:
        pieces = split_message_tokens(sent.message, sent.tokens)
        raw_sizes = split_tokens_by_weight(sent.raw_tokens, [p.weight for p, _ in pieces])
        parts = {(piece.group, piece.name) for piece, _ in pieces}
        for (piece, size), raw_size in zip(pieces, raw_sizes, strict=True):
            part = piece.group, piece.name
            tokens[part] += size
            raw_tokens[part] += piece.raw(raw_size)
            chars[part] += piece.chars
        messages_n.update(parts)
        if sent.source != "derived":
            estimated |= parts
    return [
        WindowPart(
            *part,
            tokens=tokens[part],
            raw_tokens=raw_tokens[part],
            chars=chars[part],
            messages_n=messages_n[part],
            source="estimated" if part in estimated else "derived",
        )
        for part in tokens
    ]


def _scale_parts(parts: list[WindowPart], total: int) -> list[WindowPart]:
    """Return the parts scaled down to a total: more tokens were counted than billed."""
    before: dict[str, int] = {}
    for part in parts:
        before[part.group] = before.get(part.group, 0) + part.tokens
    scaled = []
    for group, tokens in scale_groups(before, total).items():
        members = [p for p in parts if p.group == group]
        shares = split_tokens_by_weight(tokens, [p.tokens for p in members])
        raws = [
            max(p.raw_tokens * tokens // max(before[group], 1), n)
            for p, n in zip(members, shares, strict=True)
        ]
        scaled += [
            replace(p, tokens=n, raw_tokens=r)
            for p, n, r in zip(members, shares, raws, strict=True)
        ]
    return scaled


def _list_contributors(
    messages: tuple[SentMessage, ...], folder: str | None
) -> tuple[Contributor, ...]:
    calls = {id(m): c for m, c in pair_with_calls(s.message for s in messages)}
    largest = sorted(
        (s for s in messages if s.message.parts and s.tokens), key=lambda s: -s.tokens
    )[:_MAX_CONTRIBUTORS]
    return tuple(
        Contributor(
            position=s.position,
            id=s.message.id,
            role=s.message.role,
            tool=s.message.tool,
            tokens=s.tokens,
            raw_tokens=s.raw_tokens,
            chars=count_chars_and_estimate_tokens(s.message)[0],
            preview=preview_message(s.message),
            name=describe_message(s.message, calls.get(id(s.message)), folder),
            changed_by=s.changed_by,
        )
        for s in largest
    )


def preview_message(message: Message) -> str:
    """Return one line of a message's text, bounded, without control characters, not escaped."""
    for part in message.parts:
        if isinstance(part, (Text, Thinking)) and part.text.strip():
            return sanitize_line(part.text, 100)
        if isinstance(part, ToolCall):
            arguments = part.raw
            if arguments is None:
                arguments = ", ".join(f"{k}={str(v)[:60]!r}" for k, v in part.arguments.items())
            return sanitize_line(f"{part.name}({arguments})", 100)
    return f"[{message.kind or 'no text'}]"


def _model_at(session: Session, call: ModelCall | None) -> str | None:
    if call is not None:
        return call.message.model or session.model
    return next((m.model for m in reversed(session.messages) if m.model), session.model)


def _window_at(
    session: Session, call: ModelCall | None
) -> tuple[int, Provenance] | tuple[None, None]:
    model = _model_at(session, call)
    window = get_context_window(session, model, call.message if call else Message(role="user"))
    if window.tokens is None:
        return None, None
    return window.tokens, "recorded" if window.source == "recorded" else "derived"


REPORT_COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn("call", INT, "", "number of the call; missing for the prompt that comes next"),
    FrameColumn(
        "part", TEXT, "", "what it is: system prompt, tool schemas, user, tool results, ..."
    ),
    FrameColumn("name", TEXT, "", "the section or the tool, where a part has several"),
    FrameColumn("tokens", INT, "tokens", "as shown to the model"),
    FrameColumn("raw_tokens", INT, "tokens", "the same before anything was shortened"),
    FrameColumn(
        "chars", INT, "characters", "as shown to the model; missing where the log holds no content"
    ),
    FrameColumn("messages_n", INT, "messages", "messages that it is spread over"),
    FrameColumn("share", FLOAT, "share", "of the whole prompt"),
    FrameColumn("source", TEXT, "", "derived from recorded usage, or estimated"),
)
_TEXT_CELL_CSS, _NUMBER_CELL_CSS = (
    "text-align:left;padding:1px 10px 1px 0",
    "text-align:right;padding:1px 10px 1px 0",
)
_HEADINGS = ("part", "tokens", "share", "", "messages", "unshortened")
_BAR_CSS = "display:inline-block;height:9px;background:#3a93cc;vertical-align:middle"


class WindowPart(msgspec.Struct, frozen=True):
    """The tokens of one part of the window."""

    group: str
    name: str
    tokens: int
    raw_tokens: int
    """Tokens before rules shortened the messages."""
    chars: int | None
    messages_n: int
    source: Provenance


class Contributor(msgspec.Struct, frozen=True):
    """One of the largest messages in the window."""

    position: int | None
    """Position in `session.path`; None for text that a compaction inserted."""
    id: str
    role: str
    tool: str | None
    tokens: int
    raw_tokens: int
    chars: int
    preview: str
    """One line, bounded, not escaped."""
    name: str = ""
    """A description in one line, such as `Read src/a.py 1-900`; not escaped."""
    changed_by: str | None = None
    """The part of the rules, or the compaction, that changed or inserted it."""


class ContextReport(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the context window at one call."""

    session: str
    call: int | None
    """None: the next prompt."""
    turn: int | None
    agent: str
    model: str | None
    limit: int | None
    """The model's window; None: neither the log nor the table of prices has it."""
    limit_source: Provenance | None
    """`recorded`, or `derived` from the table of prices."""
    prompt_tokens: int
    prompt_source: Provenance
    residue: int
    """Tokens of the recorded prompt that the log does not show; 0 without recorded usage."""
    excess: int
    """Tokens by which the counts exceed the recorded prompt; the parts are scaled down by them."""
    messages_n: int
    counter: str
    """Name of the counter that counted messages, or split recorded sizes among them."""
    count_error: float | None
    """Error of its plain count against recorded growth, as a share; None without usage."""
    parts: tuple[WindowPart, ...]
    contributors: tuple[Contributor, ...]
    notes: tuple[str, ...] = ()
    """Sentences on what the session's log lacks or states wrongly."""
    title: str = ""
    """Title of the session; not escaped."""

    @property
    def is_known(self) -> bool:
        """True where the log has content or the size of a prompt."""
        return bool(self.parts) or (self.call is None and not self.messages_n)

    @property
    def full(self) -> float | None:
        """Tokens of the prompt as a share of the limit; None: the limit is unknown."""
        return self.prompt_tokens / self.limit if self.limit else None

    @property
    def fullness(self) -> str:
        """How full the window is, in words."""
        if self.full is None:
            return "of an unknown window"
        return f"of {self.limit:,} ({self.limit_source}): {format_percent(self.full)} full"

    def groups(self) -> dict[str, int]:
        """Return tokens by group, in the order of the report."""
        out: dict[str, int] = {}
        for part in self.parts:
            out[part.group] = out.get(part.group, 0) + part.tokens
        return out

    def frame(self) -> pd.DataFrame:
        """Return the parts as a DataFrame.

        Returns:
            One row per part with the columns `session call part name tokens raw_tokens chars
            messages_n share source`, as `REPORT_COLUMNS` defines them.
        """
        total = self.prompt_tokens
        rows = [
            {
                **msgspec.structs.asdict(p),
                "session": self.session,
                "call": self.call,
                "part": p.group,
                "name": p.name or None,
                "share": p.tokens / total if total else None,
            }
            for p in self.parts
        ]
        return build_frame(
            REPORT_COLUMNS, {c.name: [row[c.name] for row in rows] for c in REPORT_COLUMNS}
        )

    def to_text(self, *, parts: int = 40, contributors: int = 10) -> str:
        """Return the report as lines of text.

        Args:
            parts: maximum number of named parts per group.
            contributors: maximum number of messages.
        """
        out = [
            self._format_title(),
            self._format_size(),
            self._explain_sizes(),
            *(f"Note: {sanitize_line(n, 400)}" for n in self.notes),
            "",
        ]
        out += [f"{'tokens':>10}  {'share':>6}  part"]
        for group, tokens in self.groups().items():
            out.append(f"{tokens:>10,}  {self._format_share(tokens):>6}  {group}")
            named = [p for p in self.parts if p.group == group and p.name]
            out += [
                f"{p.tokens:>10,}  {'':>6}    {sanitize_line(p.name, 60)}{_before_shortening(p)}"
                for p in named[:parts]
            ]
        out += ["", "largest messages"]
        out += [
            f"{c.tokens:>10,}  {format_message_number(c.position):>6}  {sanitize_line(c.name, 80)}"
            for c in self.contributors[:contributors]
        ]
        return "\n".join(out)

    def to_html(self) -> str:
        """Return the report as HTML without scripts; text of logs is escaped."""
        has_shortened = any(p.raw_tokens != p.tokens for p in self.parts)
        headings = _HEADINGS if has_shortened else _HEADINGS[:-1]
        rows = "".join(
            _html_row(cells[: len(headings)])
            for group, tokens in self.groups().items()
            for cells in self._group_rows(group, tokens)
        )
        largest = "".join(
            f'<tr><td style="{_NUMBER_CELL_CSS}">{c.tokens:,}</td><td '
            f'style="{_NUMBER_CELL_CSS}">{format_message_number(c.position)}</td>'
            f'<td style="{_TEXT_CELL_CSS}" '
            f'title="{escape_html(c.preview, 200)}">{escape_html(c.name, 120)}</td></tr>'
            for c in self.contributors
        )
        has_gauge = self.is_known and self.full is not None
        width = min(self.full or 0.0, 1.0) * 100
        gauge = (
            '<div aria-hidden="true" style="max-width:420px;border:1px solid'
            ' #777777;height:11px;margin:4px 0">'
            f'<span style="{_BAR_CSS};display:block;height:11px;width:{width:.1f}%"></span></div>'
        )
        return (
            f'<div class="ctxkit-report {NO_MATHJAX}"'
            ' style="color:var(--jp-content-font-color1,inherit)">'
            '<strong title="id '
            f'{escape_html(self.session, 120)}">{escape_html(self._format_title(), 300)}</strong>'
            f"<br>{escape_html(self._format_size())}{gauge if has_gauge else '<br>'}"
            f"<small>{escape_html(self._explain_sizes(), 400)}</small>"
            f"{''.join(f'<br><small>Note: {escape_html(n, 400)}</small>' for n in self.notes)}"
            f"{_html_table('What fills the window', headings, rows)}"
            f"{_html_table('The largest messages', ('tokens', 'message', 'name'), largest)}</div>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        return {"text/plain": self.to_text(), "text/html": self.to_html()}

    def __repr__(self) -> str:
        return self.to_text()

    def _format_title(self) -> str:
        at = f"at call {self.call}, turn {self.turn}"
        where = "before the next call" if self.call is None else at
        model = f", {sanitize_line(self.model, 60)}" if self.model else ""
        return f"Context of {sanitize_line(self.title or self.session, 60)} {where}{model}"

    def _format_size(self) -> str:
        if not self.is_known:
            return f"Size unknown; {pluralize(self.messages_n, 'message')} without content"
        size = f"{self.prompt_tokens:,} tokens ({self.prompt_source})"
        return f"{size} {self.fullness}, {pluralize(self.messages_n, 'message')}"

    def _explain_sizes(self) -> str:
        if not self.is_known:
            return (
                "Nothing is known of what filled the window: the log holds neither content nor the"
                " size of a prompt."
            )
        if self.prompt_source == "estimated":
            return f"No usage was recorded: all sizes are counts by {self.counter}."
        if self.excess:
            more = f"{self.excess:,} tokens more are shown than were recorded"
            return f"By {self.counter} {more}: the parts are scaled down."
        error = self.count_error
        off = "" if error is None else f"; the plain count is off by {format_change(error)}"
        return (
            f"Sizes are scaled to recorded usage, shared by {self.counter}{off}. {self.residue:,}"
            " tokens are in no log."
        )

    def _format_share(self, tokens: int) -> str:
        return format_percent(tokens / self.prompt_tokens, 1) if self.prompt_tokens else ""

    def _group_rows(self, group: str, tokens: int) -> list[tuple[str, ...]]:
        named = [p for p in self.parts if p.group == group]
        raw, n = sum(p.raw_tokens for p in named), sum(p.messages_n for p in named)
        bar_width = 160 * tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        bar = f'<span aria-hidden="true" style="{_BAR_CSS};width:{bar_width:.0f}px"></span>'
        rows = [
            _part_cells(
                f"<strong>{group}</strong>", tokens, n, raw, (self._format_share(tokens), bar)
            )
        ]
        for p in named[:40]:
            if p.name:
                name = f"&emsp;{escape_html(p.name, 80)}"
                rows.append(_part_cells(name, p.tokens, p.messages_n, p.raw_tokens))
        return rows


def _part_cells(
    what: str, tokens: int, messages_n: int, raw: int, share_and_bar: tuple[str, str] = ("", "")
) -> tuple[str, ...]:
    """Return the cells of a row, with share and bar if they are given."""
    unshortened = f"{raw:,}" if raw != tokens else ""
    return what, f"{tokens:,}", *share_and_bar, f"{messages_n or ''}", unshortened


def _html_row(cells: tuple[str, ...]) -> str:
    styles = (
        _TEXT_CELL_CSS,
        _NUMBER_CELL_CSS,
        _NUMBER_CELL_CSS,
        _TEXT_CELL_CSS,
        _NUMBER_CELL_CSS,
        _NUMBER_CELL_CSS,
    )
    cells_html = (f'<td style="{s}">{c}</td>' for s, c in zip(styles, cells, strict=False))
    return f"<tr>{''.join(cells_html)}</tr>"


def _html_table(caption: str, heads: tuple[str, ...], rows: str) -> str:
    head = "".join(f'<th scope="col" style="{_TEXT_CELL_CSS}">{h}</th>' for h in heads)
    return (
        f'<div style="{SCROLL_BOX_CSS}">'
        '<table style="border-collapse:collapse;margin:8px 0;color:inherit">'
        f'<caption style="text-align:left;font-weight:bold">{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _before_shortening(part: WindowPart) -> str:
    return f" (before shortening {part.raw_tokens:,})" if part.raw_tokens != part.tokens else ""


@register_view_values("report")
def _read_figures(session: Session) -> dict[str, Any]:
    if not session.calls or session.calls[-1].message.kind == "turn":
        return {}
    return {"last_prompt_tokens": report(session).prompt_tokens or None}
