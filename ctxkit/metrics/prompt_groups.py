"""Tokens of prompts by group (system, tools, user, results ...): per message, per section and per
call.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal.formatting import sanitize_line
from ctxkit.session.messages import MISSING_START_KIND, Edit, Image, Text, Thinking, ToolCall
from ctxkit.session.session import apply_edit
from ctxkit.tokens.counters import count_json_chars, count_part_chars, estimate_part_tokens
from ctxkit.tokens.live_prompt_sizes import (
    PromptSize,
    estimate_next_prompt,
    get_billed_prompt,
    get_prompt_size,
)
from ctxkit.tokens.sizes import MessageSizes, measure_sizes, split_by_weight

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.policies.schedules.rows import MessageState
    from ctxkit.session.messages import Message, Part, Provenance, ToolSchema
    from ctxkit.session.session import Session
    from ctxkit.tokens.counters import TokenCounter


class GroupsByCall(NamedTuple):
    """Tokens of each group at each call."""

    calls: tuple[int, ...]
    groups: dict[str, tuple[int, ...]]
    """Groups that hold anything at any call, in the order of `GROUPS`; their sum is the prompt."""
    source: Provenance
    """`derived` where recorded prompts anchor the sizes, else `estimated`."""


def count_groups_by_call(
    session: Session, counter: TokenCounter | None = None, sized: MessageSizes | None = None
) -> GroupsByCall:
    """Return what each prompt held, as `report` has it; `sized`: a record's sizes, where known."""
    if session.behind is None:
        rows = _groups_of_record(session, sized or measure_sizes(session, counter))
    else:
        rows = _groups_of_run(session)
    groups = {g: tuple(row.get(g, 0) for row in rows) for g in GROUPS}
    used = {g: tokens for g, tokens in groups.items() if any(tokens)}
    return GroupsByCall(
        tuple(range(len(rows))), used, "derived" if has_recorded_prompt(session) else "estimated"
    )


def _groups_of_run(session: Session) -> list[dict[str, int]]:
    """Return the groups of each prompt of a run, from what came and went at each call."""
    known: dict[int, list[tuple[str, int]]] = {}

    def parts(state: MessageState) -> list[tuple[str, int]]:
        if state.content not in known:
            found = (
                [] if state.message is None else share_message_tokens(state.message, state.tokens)
            )
            known[state.content] = [(p.group, n) for p, n in found]
        return known[state.content]

    rows: list[dict[str, int]] = []
    now: dict[str, int] = {}
    for turnover in session.behind.turnovers(0, len(session.calls)):
        if turnover.anew:
            now, known = {}, {}
        for state in turnover.came:
            _add_groups(now, parts(state))
        for state in turnover.gone:
            _add_groups(now, [(group, -n) for group, n in parts(state)])
        rows.append(_scale_to_bill(session, len(rows), now, turnover.fixed))
    return rows


def _scale_to_bill(session: Session, call: int, now: dict[str, int], fixed: int) -> dict[str, int]:
    """Return the groups of a prompt, as large together as it was billed."""
    fixed = session.behind.schemas if is_live(session) else fixed
    groups, whole = {k: n for k, n in now.items() if n}, sum(now.values()) + fixed
    size = size_of(session, call, whole)
    if fixed < 0:
        groups, fixed = scale_groups(groups, whole), 0
    if size.tokens != whole:
        groups = scale_groups({**groups, NOT_IN_LOG: fixed}, size.tokens)
        fixed = groups[NOT_IN_LOG]
    rest, schemas = separate_schemas(session, fixed, is_whole=is_live(session))
    return {**groups, TOOL_SCHEMAS: sum(schemas), NOT_IN_LOG: rest}


def is_live(session: Session) -> bool:
    """Say whether a session that a run is behind was not replayed: its prompts were sent."""
    return session.format != "replay"


def size_of(session: Session, call: int | None, counted: int) -> PromptSize:
    """Return the size of a prompt of a session that a run is behind.

    Args:
        session: a live session or a replay.
        call: number of the call; None: the prompt that comes next.
        counted: what was sent, as counted: the size where nobody knows better.
    """
    if is_live(session):
        return estimate_next_prompt(session) if call is None else get_prompt_size(session, call)
    told = None
    if call is not None and session.behind.owing:  # it goes by the last usage, so it has bills
        told = get_billed_prompt(session.calls[call].message)
    return PromptSize(counted, "estimated") if told is None else PromptSize(told, "recorded")


def separate_schemas(
    session: Session, fixed: int, *, is_whole: bool = False
) -> tuple[int, list[int]]:
    """Return what of the fixed part is in no log, and each tool's schema.

    Args:
        session: any session.
        fixed: tokens of a prompt that no message holds.
        is_whole: the schemas are all of it, as in a live session, which knows all that it was sent.
    """
    schemas = _schema_tokens(session)
    if schemas and (is_whole or sum(schemas) > fixed):
        schemas = apportion(max(fixed, 0), schemas)
    return fixed - sum(schemas), schemas


def _groups_of_record(session: Session, sized: MessageSizes) -> list[dict[str, int]]:
    """Return the groups of each prompt of a record, in one pass over its log."""
    known: dict[int, list[tuple[str, int]]] = {}

    def parts(message: Message) -> list[tuple[str, int]]:
        if id(message) not in known:
            known[id(message)] = [
                (p.group, n) for p, n in share_message_tokens(message, sized.of(message))
            ]
        return known[id(message)]

    rows: list[dict[str, int]] = []
    now: dict[str, int] = {}
    shown: list[Message] = []
    for entry in session.path:
        if isinstance(entry, Edit):
            shown, now = apply_edit(shown, entry), {}
            for message in shown:
                _add_groups(now, parts(message))
            continue
        if entry.role == "assistant":
            rows.append(_groups_of_prompt(session, sized, len(rows), now))
        if entry.visible:
            shown.append(entry)
            _add_groups(now, parts(entry))
    return rows


def _groups_of_prompt(
    session: Session, sized: MessageSizes, call: int, now: dict[str, int]
) -> dict[str, int]:
    """What is visible now and what is not; scaled where more is visible than was recorded."""
    visible, recorded = sum(now.values()), get_recorded_prompt(session, sized, call)
    rest, schemas, later = measure_unlogged(session, sized, call, visible)
    if recorded is not None and visible > (room := recorded - rest - sum(schemas) - later):
        now = scale_groups(now, room)
    return {**now, TOOL_SCHEMAS: sum(schemas), NOT_IN_LOG: rest, NOT_IN_LOG_LATER: later}


def scale_groups(groups: dict[str, int], total: int) -> dict[str, int]:
    """Return the groups made smaller together, so that they sum up to a total."""
    names = sorted(groups, key=GROUPS.index)
    return dict(zip(names, apportion(total, [groups[name] for name in names]), strict=True))


def _add_groups(now: dict[str, int], parts: list[tuple[str, int]]) -> None:
    for group, n in parts:
        now[group] = now.get(group, 0) + n


def get_recorded_prompt(session: Session, sized: MessageSizes, call: int | None) -> int | None:
    """The recorded prompt of a call; None without one, or where the log has only sums of turns."""
    if call is None or session.calls[call].message.kind == "turn":
        return None
    return sized.recorded[call]


def measure_unlogged(
    session: Session, sized: MessageSizes, call: int | None, visible: int
) -> tuple[int, list[int], int]:
    """Return what of a prompt no message shows: the rest that the log does not hold, each tool
    schema, and later ones.

    With recorded usage all together are the recorded prompt less what is visible, never below zero,
    and the schemas take no more than that; without it the schemas stand at their plain estimate and
    there is no rest. The rest stays what it was at the agent's first call: what is more came later,
    and where the prompt fell without a mark, less of the visible was sent.
    """
    schemas = _schema_tokens(session)
    if not has_recorded_prompt(session):
        return 0, schemas, 0
    recorded, at = get_recorded_prompt(session, sized, call), -1 if call is None else call
    fixed, later = sized.fixed_at[at], 0
    if recorded is None:
        rest = fixed
    elif sized.unsent_at[at]:
        rest = min(fixed, recorded)
    else:
        rest = max(recorded - visible, 0)
        later = max(rest - sized.begun[at], 0) if fixed > sized.begun[at] else 0
    rest -= later
    if sum(schemas) > rest:
        schemas = apportion(rest, schemas)
    return rest - sum(schemas), schemas, later


def has_recorded_prompt(session: Session) -> bool:
    """True where the size of at least one prompt was recorded; worked out once a session."""
    known: bool | None = session.__dict__.get("is anchored")
    if known is None:
        known = session.__dict__["is anchored"] = any(
            c.message.usage and c.message.usage.prompt_tokens and c.message.kind != "turn"
            for c in session.calls
        )
    return known


def _schema_tokens(session: Session) -> list[int]:
    """Return the plain estimate of each tool's schema; worked out once a session."""
    known: list[int] | None = session.__dict__.get("schemas")
    if known is None:
        known = session.__dict__["schemas"] = [
            -(-count_schema_chars(t) // 4) for t in session.tools
        ]
    return known


def count_schema_chars(tool: ToolSchema) -> int:
    """Characters of a tool's schema as JSON, as the log says or by what of it the log holds."""
    if tool.chars is not None:
        return tool.chars
    return len(tool.name) + len(tool.description) + count_json_chars(tool.parameters)


SYSTEM_PROMPT, TOOL_SCHEMAS, MEMORY, SUMMARIES = (
    "system prompt",
    "tool schemas",
    "memory",
    "summaries",
)
USER_TEXT, INJECTED, ASSISTANT_TEXT, THINKING, TOOL_CALLS = (
    "user",
    "injected",
    "assistant text",
    "thinking",
    "tool calls",
)
TOOL_RESULTS, IMAGES, AUDIO, DOCUMENTS, NOT_IN_LOG = (
    "tool results",
    "images",
    "audio",
    "documents",
    "not in the log",
)
LOST_HEAD = "lost with the log's head"
"""A conversation's beginning that is not in its file."""
NOT_IN_LOG_LATER = "not in the log, since"
"""What a prompt holds beside its messages and beyond what it began with."""
DROPPED_UNMARKED = "dropped without a mark"
"""What the log shows and the prompt no longer held: no tokens, but a size before."""
GROUPS = (
    SYSTEM_PROMPT,
    TOOL_SCHEMAS,
    MEMORY,
    SUMMARIES,
    USER_TEXT,
    INJECTED,
    ASSISTANT_TEXT,
    THINKING,
    TOOL_CALLS,
    TOOL_RESULTS,
    IMAGES,
    AUDIO,
    DOCUMENTS,
    NOT_IN_LOG,
    LOST_HEAD,
    NOT_IN_LOG_LATER,
    DROPPED_UNMARKED,
)
"""All groups, in the order in which they are shown."""
_BINARY = {"image": IMAGES, "audio": AUDIO, "document": DOCUMENTS}
_INJECTED = frozenset({"wrapper", "injected", "custom", "hook", "reminder", "attachment"})


class PromptPiece(NamedTuple):
    """A piece of a message: where it counts, and how much of the message it is."""

    group: str
    name: str
    """The section, the tool; empty where the group has no members."""
    chars: int
    weight: int
    """The plain estimate, by which the size of the message is shared among its pieces."""
    raw_chars: int = 0
    """Characters of what it was made from, where those are more; else 0."""

    def raw(self, tokens: int) -> int:
        """Return the tokens that it would have uncut, by its characters."""
        return max(tokens, tokens * self.raw_chars // max(self.chars, 1))


def split_message(message: Message) -> list[PromptPiece]:
    """Return what a message adds, piece by piece."""
    if message.sections:
        return [_named_section(message, *each) for each in message.sections]
    return [piece for part in message.parts for piece in _split_part(message, part)]


def share_message_tokens(message: Message, tokens: int) -> list[tuple[PromptPiece, int]]:
    """Return the pieces of a message, each with its share of all of the message's tokens."""
    found = split_message(message)
    if not found and tokens:  # only its size is known
        found = [PromptPiece(*_group_of_part(message, Text("")), 0, 1)]
    return list(zip(found, apportion(tokens, [p.weight for p in found]), strict=True))


def _split_part(message: Message, part: Part) -> Iterator[PromptPiece]:
    if message.role == "system" and isinstance(part, Text):
        for name, text in split_sections(part.text):
            group = MEMORY if "memor" in name.lower() else SYSTEM_PROMPT
            yield PromptPiece(group, name, len(text), -(-len(text) // 4))
    else:
        group, name = _group_of_part(message, part)
        yield PromptPiece(group, name, count_part_chars(part), estimate_part_tokens(part))


def _named_section(message: Message, name: str, text: str, raw_chars: int) -> PromptPiece:
    """Return a section that the message names itself."""
    group = MEMORY if name == "memory" else SYSTEM_PROMPT if message.role == "system" else INJECTED
    raw = raw_chars if raw_chars > len(text) else 0
    return PromptPiece(group, sanitize_line(name, 60), len(text), max(-(-len(text) // 4), 1), raw)


def _group_of_part(message: Message, part: Part) -> tuple[str, str]:
    if isinstance(part, Image):
        return _BINARY[part.kind], ""
    if isinstance(part, ToolCall):
        return TOOL_CALLS, part.name
    if message.role == "tool":
        return TOOL_RESULTS, message.tool or "unknown tool"
    if isinstance(part, Thinking):
        return THINKING, ""
    return _group_of_text(message)


def _group_of_text(message: Message) -> tuple[str, str]:
    if message.kind == MISSING_START_KIND:
        return LOST_HEAD, ""
    if message.role == "summary" or message.kind == "branch_summary":
        return SUMMARIES, ""
    if "memor" in message.kind:
        return MEMORY, message.kind
    if message.role == "system":
        return SYSTEM_PROMPT, message.kind or "preamble"
    if message.role == "assistant":
        return ASSISTANT_TEXT, ""
    return (INJECTED, message.kind) if message.kind in _INJECTED else (USER_TEXT, "")


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Share a whole number by weights, with no rest: the largest remainders are rounded up."""
    if not any(weights):
        return [total if i == 0 else 0 for i in range(len(weights))]
    return split_by_weight(total, weights)


_FENCE = re.compile(r"^\s{0,3}(```|~~~)")
_HEADING = re.compile(r"^(#{1,6})[ \t]+(\S.*?)[ \t#]*$")
_OPEN = re.compile(r"^<([A-Za-z][\w.-]{0,63})(?:\s[^<>]*)?>")
_CLOSE = re.compile(r"</([A-Za-z][\w.-]{0,63})>")
_MAX = 200
"""Sections of one prompt; what follows belongs to the last one."""


class PromptSection(NamedTuple):
    """A named stretch of a prompt."""

    name: str
    text: str


def split_sections(text: str) -> tuple[PromptSection, ...]:
    """Return the sections of a prompt, in order; their texts joined are the prompt.

    A section begins at a Markdown heading of the two topmost levels that the prompt uses, or at a
    line that opens an XML block, which reaches to its closing tag whatever stands inside. What
    stands before the first is called ``preamble``; a prompt without sections is one section of that
    name.
    """
    lines = text.splitlines(keepends=True)
    starts = list(_section_starts(lines))[:_MAX]
    out, name, begin = [], "preamble", 0
    for start, following in [*starts, (len(lines), "")]:
        if start > begin:
            out.append(PromptSection(name, "".join(lines[begin:start])))
        name, begin = following, start
    return tuple(out)


def _section_starts(lines: list[str]) -> list[tuple[int, str]]:
    found: list[tuple[int, int, str]] = []
    closings: dict[str, list[int]] = {}
    for i, line in enumerate(lines):
        for tag in _CLOSE.findall(line):
            closings.setdefault(tag, []).append(i)
    fenced, i = "", 0
    while i < len(lines):
        line = lines[i]
        fence = _FENCE.match(line)
        if fence:
            fenced = "" if fenced == fence[1] else fenced or fence[1]
        elif not fenced and (heading := _HEADING.match(line.rstrip("\r\n"))):
            found.append((i, len(heading[1]), heading[2][:80]))
        elif (
            not fenced
            and (tag := _OPEN.match(line))
            and (end := _first_from(closings.get(tag[1], []), i)) is not None
        ):
            found.append((i, 0, tag[1]))
            if end + 1 < len(lines):
                found.append((end + 1, 0, "text"))
            i = end
        i += 1
    levels = sorted({level for _, level, _ in found if level})[:2]
    kept = {start: name for start, level, name in found if level == 0 or level in levels}
    named = {
        start: name
        for start, level, name in found
        if level in levels or (level == 0 and name != "text")
    }
    return sorted((kept | named).items())


def _first_from(places: list[int], start: int) -> int | None:
    """Return the first place from one on."""
    at = bisect_left(places, start)
    return places[at] if at < len(places) else None
