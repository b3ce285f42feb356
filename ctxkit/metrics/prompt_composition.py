"""Tokens of prompts by group (system, tools, user, results ...), per message, section and call."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.session.messages import (
    ATTACHMENT_KEY,
    MISSING_START_KIND,
    WHOLE_PROMPTS_KEY,
    Attachment,
    Edit,
    Text,
    Thinking,
    ToolCall,
)
from ctxkit.session.session import apply_edit
from ctxkit.tokens.live_prompt_sizes import (
    PromptSize,
    estimate_next_prompt,
    get_billed_prompt,
    get_prompt_size,
)
from ctxkit.tokens.message_sizes_from_recorded_prompts import (
    MessageSizes,
    estimate_tool_tokens,
    is_count_near,
    measure_sizes,
    split_by_weight,
)
from ctxkit.tokens.message_token_counting import count_part_chars, estimate_part_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.policies.schedules.messages_without_any_pruning import MessageState
    from ctxkit.session.messages import Message, Part, Provenance
    from ctxkit.session.session import Session
    from ctxkit.tokens.token_counters import TokenCounter


class GroupTokensByCall(NamedTuple):
    """Tokens of each group at each call."""

    calls: tuple[int, ...]
    groups: dict[str, tuple[int, ...]]
    """Groups with tokens at any call, in the order of `GROUPS`; their sum is the prompt."""
    source: Provenance
    """`derived` where recorded prompts anchor the sizes, else `estimated`."""


def count_groups_by_call(
    session: Session, counter: TokenCounter | None = None, sized: MessageSizes | None = None
) -> GroupTokensByCall:
    """Return the tokens of each prompt by group, as `report` shows them.

    Args:
        session: any session.
        counter: counts messages of a record where usage does not give their size.
        sized: the sizes of a record's messages; None: measured here.

    Returns:
        The calls, for each group that occurs the tokens of each call, and where the sums come from:
        `"derived"` from billed prompts or `"estimated"`.

    Example:
        >>> import ctxkit as ck
        >>> counted = count_groups_by_call(ck.read(ck.samples.path("billing")))
        >>> counted.source, counted.groups["user"][:3]
        ('derived', (80, 80, 80))
    """
    from ctxkit.engine.replay import find_prompt_source

    run = find_prompt_source(session)
    if run is None:
        rows = _groups_of_record(session, sized or measure_sizes(session, counter))
    else:
        rows = _groups_of_run(session, run)
    groups = {g: tuple(row.get(g, 0) for row in rows) for g in GROUPS}
    used = {g: tokens for g, tokens in groups.items() if any(tokens)}
    return GroupTokensByCall(
        tuple(range(len(rows))),
        used,
        "derived" if has_recorded_prompt_sizes(session) else "estimated",
    )


def _groups_of_run(session: Session, run: Any) -> list[dict[str, int]]:
    """Return the groups of each prompt of a run, from the changes at each call."""
    groups_of_content: dict[int, list[tuple[str, int]]] = {}

    def get_groups(state: MessageState) -> list[tuple[str, int]]:
        if state.content not in groups_of_content:
            pieces = (
                [] if state.message is None else split_message_tokens(state.message, state.tokens)
            )
            groups_of_content[state.content] = [(p.group, n) for p, n in pieces]
        return groups_of_content[state.content]

    rows: list[dict[str, int]] = []
    current: dict[str, int] = {}
    for change in run.prompt_changes(0, len(session.calls)):
        if change.anew:
            current, groups_of_content = {}, {}
        for state in change.added:
            _add_groups(current, get_groups(state))
        for state in change.removed:
            _add_groups(current, [(group, -n) for group, n in get_groups(state)])
        rows.append(_scale_to_bill(session, len(rows), current, change.fixed))
    return rows


def _scale_to_bill(
    session: Session, call: int, current: dict[str, int], fixed: int
) -> dict[str, int]:
    """Return the groups of a prompt, scaled to add up to the billed prompt."""
    fixed = session.prompt_source.schemas if has_live_run(session) else fixed
    groups, counted = {k: n for k, n in current.items() if n}, sum(current.values()) + fixed
    size = get_rules_run_prompt_size(session, call, counted)
    if fixed < 0:
        groups, fixed = scale_groups(groups, counted), 0
    if size.tokens != counted:
        groups = scale_groups({**groups, NOT_IN_LOG: fixed}, size.tokens)
        fixed = groups[NOT_IN_LOG]
    rest, schemas = separate_schemas(session, fixed, is_whole=has_live_run(session))
    return {**groups, TOOL_SCHEMAS: sum(schemas), NOT_IN_LOG: rest}


def has_live_run(session: Session) -> bool:
    """Return True if a session has the live run that sent its prompts."""
    return session.prompt_source is not None and session.format != "replay"


def get_rules_run_prompt_size(session: Session, call: int | None, counted: int) -> PromptSize:
    """Return the size of a prompt of a session that has a run.

    Args:
        session: a live session or a replay.
        call: number of the call; None: the next prompt.
        counted: counted tokens, which are the size where nothing was billed.
    """
    if has_live_run(session):
        return estimate_next_prompt(session) if call is None else get_prompt_size(session, call)
    billed = None
    if (
        call is not None and session.prompt_source is not None and session.prompt_source.owing
    ):  # a replay by recorded usage has bills
        billed = get_billed_prompt(session.calls[call].message)
    return PromptSize(counted, "estimated") if billed is None else PromptSize(billed, "recorded")


def separate_schemas(
    session: Session, fixed: int, *, is_whole: bool = False
) -> tuple[int, list[int]]:
    """Split the fixed part: return the tokens that are not in the log, and those of each schema.

    Args:
        session: any session.
        fixed: tokens of a prompt that belong to no message.
        is_whole: True where the fixed part consists of schemas only, as in a live session.

    Returns:
        (unlogged tokens, tokens of each of `session.tools`); together they are `fixed`.
    """
    schemas = _estimate_schema_tokens(session)
    if schemas and (is_whole or sum(schemas) > fixed):
        schemas = split_tokens_by_weight(max(fixed, 0), schemas)
    return fixed - sum(schemas), schemas


def _groups_of_record(session: Session, sized: MessageSizes) -> list[dict[str, int]]:
    """Return the groups of each prompt of a record, in one pass over its log."""
    groups_of_message: dict[int, list[tuple[str, int]]] = {}

    def get_groups(message: Message) -> list[tuple[str, int]]:
        if id(message) not in groups_of_message:
            groups_of_message[id(message)] = [
                (p.group, n) for p, n in split_message_tokens(message, sized.of(message))
            ]
        return groups_of_message[id(message)]

    rows: list[dict[str, int]] = []
    current: dict[str, int] = {}
    visible: list[Message] = []
    for entry in session.path:
        if isinstance(entry, Edit):
            visible, current = apply_edit(visible, entry), {}
            for message in visible:
                _add_groups(current, get_groups(message))
            continue
        if entry.role == "assistant":
            rows.append(_groups_of_prompt(session, sized, len(rows), current))
        if entry.visible:
            visible.append(entry)
            _add_groups(current, get_groups(entry))
    return rows


def _groups_of_prompt(
    session: Session, sized: MessageSizes, call: int, current: dict[str, int]
) -> dict[str, int]:
    """Return the groups of a prompt; messages are scaled down if they exceed the recorded size."""
    visible, recorded = sum(current.values()), get_recorded_prompt_size(sized, call)
    rest, schemas, later = measure_tokens_outside_messages(session, sized, call, visible)
    if recorded is not None and visible > (max_visible := recorded - rest - sum(schemas) - later):
        current = scale_groups(current, max_visible)
    return {**current, TOOL_SCHEMAS: sum(schemas), NOT_IN_LOG: rest, NOT_IN_LOG_LATER: later}


def scale_groups(groups: dict[str, int], total: int) -> dict[str, int]:
    """Return the tokens of groups, scaled so that they add up to a total.

    Args:
        groups: tokens by name of the group.
        total: their sum after scaling.
    """
    names = sorted(groups, key=GROUPS.index)
    return dict(
        zip(names, split_tokens_by_weight(total, [groups[name] for name in names]), strict=True)
    )


def _add_groups(totals: dict[str, int], parts: list[tuple[str, int]]) -> None:
    for group, n in parts:
        totals[group] = totals.get(group, 0) + n


def get_recorded_prompt_size(sized: MessageSizes, call: int | None) -> int | None:
    """Return the recorded prompt of a call; None if there is none or it sums a whole turn.

    Args:
        sized: sizes of a session's messages.
        call: number of the call, from 0; None: the next call, which has no record.
    """
    return None if call is None else sized.recorded[call]


def measure_tokens_outside_messages(
    session: Session, sized: MessageSizes, call: int | None, visible: int
) -> tuple[int, list[int], int]:
    """Return the tokens of a prompt outside its messages: rest, each tool schema, later additions.

    With recorded usage they add up to the recorded prompt less the visible messages, which bounds
    the schemas; without usage schemas have their plain estimate and the rest is 0. The rest is
    fixed at the agent's first call; later tokens above it are later additions. In a log of whole
    requests all of it belongs to schemas, within the error of counting. Where the prompt fell
    without a mark in the log, fewer messages were sent than are visible.

    Args:
        session: the session.
        sized: sizes of its messages.
        call: number of the call, from 0; None: the next call.
        visible: tokens of the messages in the prompt.
    """
    schemas = _estimate_schema_tokens(session)
    if not has_recorded_prompt_sizes(session):
        return 0, schemas, 0
    recorded, at = get_recorded_prompt_size(sized, call), -1 if call is None else call
    fixed, later = sized.fixed_at[at], 0
    if recorded is None:
        rest = fixed
    elif sized.unsent_at[at]:
        rest = min(fixed, recorded)
    else:
        rest = max(recorded - visible, 0)
        later = max(rest - sized.first_fixed_at[at], 0) if fixed > sized.first_fixed_at[at] else 0
    is_whole = session.details.get(WHOLE_PROMPTS_KEY) is True
    if is_whole and is_count_near(rest, sum(schemas)):
        # A whole request holds nothing else, so the rest is the error of the schemas' counts.
        return 0, split_tokens_by_weight(rest, schemas), 0
    rest -= later
    if sum(schemas) > rest:
        schemas = split_tokens_by_weight(rest, schemas)
    return rest - sum(schemas), schemas, later


def has_recorded_prompt_sizes(session: Session) -> bool:
    """Return True if the size of at least one prompt was recorded; cached in the session."""
    cached: bool | None = session.__dict__.get("is anchored")
    if cached is None:
        cached = session.__dict__["is anchored"] = any(
            c.message.prompt_tokens for c in session.calls
        )
    return cached


def _estimate_schema_tokens(session: Session) -> list[int]:
    """Return the plain estimate of each tool schema in tokens; cached in the session."""
    cached: list[int] | None = session.__dict__.get("schemas")
    if cached is None:
        cached = session.__dict__["schemas"] = estimate_tool_tokens(session.tools)
    return cached


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
"""The beginning of a conversation that is not in its file."""
NOT_IN_LOG_LATER = "not in the log, since"
"""Tokens outside messages that the first prompt did not have."""
DROPPED_UNMARKED = "dropped without a mark"
"""Messages of the log that were no longer in the prompt: 0 tokens, but a raw size."""
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
"""All groups, in display order."""
_BINARY_GROUPS = {"image": IMAGES, "audio": AUDIO, "document": DOCUMENTS}
_INJECTED_KINDS = frozenset({"wrapper", "injected", "custom", "hook", "reminder", "attachment"})


class PromptPiece(NamedTuple):
    """A piece of a message, its group, and its weight within the message."""

    group: str
    name: str
    """The section or tool; empty if the group is not divided."""
    chars: int
    weight: int
    """Plain estimate of its tokens, for splitting the size of the message among its pieces."""
    raw_chars: int = 0
    """Characters of its longer original; 0 if it was not shortened."""

    def raw(self, tokens: int) -> int:
        """Return the tokens of its original, in proportion to the characters."""
        return max(tokens, tokens * self.raw_chars // max(self.chars, 1))


def split_message(message: Message) -> list[PromptPiece]:
    """Return the pieces of a message."""
    if message.sections:
        return [_named_section(message, *each) for each in message.sections]
    return [piece for part in message.parts for piece in _split_part(message, part)]


def split_message_tokens(message: Message, tokens: int) -> list[tuple[PromptPiece, int]]:
    """Return the pieces of a message, each with its share of the message's tokens.

    Args:
        message: the message as it was sent.
        tokens: its size, which the pieces share by their weights.

    Returns:
        Pieces with whole numbers of tokens that add up to `tokens`.
    """
    pieces = split_message(message)
    if not pieces and tokens:  # only its size is known
        pieces = [PromptPiece(*_group_of_part(message, Text("")), 0, 1)]
    return list(
        zip(pieces, split_tokens_by_weight(tokens, [p.weight for p in pieces]), strict=True)
    )


def _split_part(message: Message, part: Part) -> Iterator[PromptPiece]:
    is_injected = message.kind in _INJECTED_KINDS
    if message.role == "system" and isinstance(part, Text) and not is_injected:
        for name, text in split_sections(part.text):
            group = MEMORY if "memor" in name.lower() else SYSTEM_PROMPT
            yield PromptPiece(group, name, len(text), -(-len(text) // 4))
    else:
        group, name = _group_of_part(message, part)
        yield PromptPiece(group, name, count_part_chars(part), estimate_part_tokens(part))


def _named_section(message: Message, name: str, text: str, raw_chars: int) -> PromptPiece:
    """Return the piece of a section that the message names itself."""
    group = MEMORY if name == "memory" else SYSTEM_PROMPT if message.role == "system" else INJECTED
    raw = raw_chars if raw_chars > len(text) else 0
    return PromptPiece(group, sanitize_line(name, 60), len(text), max(-(-len(text) // 4), 1), raw)


def _group_of_part(message: Message, part: Part) -> tuple[str, str]:
    if isinstance(part, Attachment):
        return _BINARY_GROUPS[part.kind], ""
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
    if message.kind in _INJECTED_KINDS and message.role in ("system", "user"):
        return INJECTED, _attachment_name(message) or message.kind
    if message.role == "system":
        return SYSTEM_PROMPT, message.kind or "preamble"
    return (ASSISTANT_TEXT if message.role == "assistant" else USER_TEXT), ""


def _attachment_name(message: Message) -> str:
    name = message.details.get(ATTACHMENT_KEY)
    return sanitize_line(name, 60) if isinstance(name, str) else ""


def split_tokens_by_weight(total: int, weights: Sequence[int]) -> list[int]:
    """Split an integer by weights into integers that add up to it (largest remainder method).

    Args:
        total: the integer to split.
        weights: weight of each part; if all are 0, the first part gets all.
    """
    if not any(weights):
        return [total if i == 0 else 0 for i in range(len(weights))]
    return split_by_weight(total, weights)


_FENCE = re.compile(r"^\s{0,3}(```|~~~)")
_HEADING = re.compile(r"^(#{1,6})[ \t]+(\S.*?)[ \t#]*$")
_OPENING_TAG = re.compile(r"^<([A-Za-z][\w.-]{0,63})(?:\s[^<>]*)?>")
_CLOSING_TAG = re.compile(r"</([A-Za-z][\w.-]{0,63})>")
_MAX_SECTIONS = 200
"""Maximum number of sections of one prompt; further text belongs to the last one."""


class PromptTextSection(NamedTuple):
    """A named section of a prompt."""

    name: str
    text: str


def split_sections(text: str) -> tuple[PromptTextSection, ...]:
    """Return the sections of a prompt, in order; their texts joined are the prompt.

    A section begins at a Markdown heading of the two highest levels in the prompt, or at a line
    that opens an XML block and ends with its closing tag. Text before the first section is the
    section ``preamble``.

    Args:
        text: the prompt.

    Returns:
        Sections, each with its name; `preamble` for the text before the first.

    Example:
        >>> sections = split_sections("<rules>Never push.</rules>")
        >>> [section.name for section in sections]
        ['rules']
    """
    lines = text.splitlines(keepends=True)
    starts = list(_find_section_starts(lines))[:_MAX_SECTIONS]
    out, name, begin = [], "preamble", 0
    for start, following in [*starts, (len(lines), "")]:
        if start > begin:
            out.append(PromptTextSection(name, "".join(lines[begin:start])))
        name, begin = following, start
    return tuple(out)


def _find_section_starts(lines: list[str]) -> list[tuple[int, str]]:
    candidates: list[tuple[int, int, str]] = []
    closing_lines: dict[str, list[int]] = {}
    for i, line in enumerate(lines):
        for tag in _CLOSING_TAG.findall(line):
            closing_lines.setdefault(tag, []).append(i)
    open_fence, i = "", 0
    while i < len(lines):
        line = lines[i]
        fence = _FENCE.match(line)
        if fence:
            open_fence = "" if open_fence == fence[1] else open_fence or fence[1]
        elif not open_fence and (heading := _HEADING.match(line.rstrip("\r\n"))):
            candidates.append((i, len(heading[1]), heading[2][:80]))
        elif (
            not open_fence
            and (tag := _OPENING_TAG.match(line))
            and (end := _find_first_from(closing_lines.get(tag[1], []), i)) is not None
        ):
            candidates.append((i, 0, tag[1]))
            if end + 1 < len(lines):
                candidates.append((end + 1, 0, "text"))
            i = end
        i += 1
    levels = sorted({level for _, level, _ in candidates if level})[:2]
    starts = {start: name for start, level, name in candidates if level == 0 or level in levels}
    named = {
        start: name
        for start, level, name in candidates
        if level in levels or (level == 0 and name != "text")
    }
    return sorted((starts | named).items())


def _find_first_from(positions: list[int], start: int) -> int | None:
    """Return the first position at or after a start."""
    at = bisect_left(positions, start)
    return positions[at] if at < len(positions) else None
