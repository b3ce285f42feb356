"""Anthropic's server-side compaction and clearing of tool results (its context editing)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.claude_code_attachments import SUMMARY_PREFIX
from ctxkit.formats.conversations_from_requests import ChatConversation, make_message_key
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    str_or_none,
)
from ctxkit.session.messages import Edit, Message, SizeOnly, Text, Usage, get_plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# A `compaction` block stands for all that the API dropped before it:
#   threshold   the block heads the reply of the call that crossed the threshold; the client sends
#               the whole history again, and the API ignores what comes before the block
#   on demand   a request with `compaction` is answered by the block alone; the client puts it in
#               the place of the messages that it sent, and the turns that it kept after it
# Both are read in the same way: the raw messages of a request are cut at their last block, and the
# block is a raw message of its own (role `summary`), which the next request repeats.
# The summary's own call is in `usage.iterations` and not in the top-level usage.

BLOCK = "compaction"
_SUMMARY_ROLE = "summary"
_MAX_WAITING = 64
"""Summaries on demand that are remembered until a request holds their block."""
CLEARED_TEXT = "[cleared by the API]"


class AnthropicConversation(ChatConversation):
    """A conversation in which the API may have compacted or cleared messages."""

    def __init__(self, format_: str, parse_usage: Callable[[Any], Usage | None]) -> None:
        super().__init__(format_)
        self._parse_usage = parse_usage
        self._on_demand: dict[str, Edit] = {}
        """Edits of summaries on demand that are in no request yet, by their text."""
        self._cleared_ids = set[str]()
        """Results that the API leaves out of its prompts."""

    def parse_message(self, raw: Any, **fields: Any) -> list[Message]:
        """Parse a raw message; a compaction block becomes a summary, the rest as usual."""
        if type(raw) is dict and raw.get("role") == _SUMMARY_ROLE:
            return [self._make_summary(raw)]
        return super().parse_message(raw, **fields)

    def count_replacement(self, messages: list[Message], start: int) -> int:
        """Return the end of what replaced the old messages: a client's summary is alone."""
        text = get_plain_text(messages[start]) if start < len(messages) else ""
        is_summary = text.startswith(SUMMARY_PREFIX)
        return start + 1 if is_summary else super().count_replacement(messages, start)

    def _make_summary(self, raw: dict[str, Any]) -> Message:
        text = str_or_none(raw.get("content"))
        part = Text(text) if text else SizeOnly(BLOCK)  # sealed: nobody knows its size
        return Message(role="summary", id=self.log.new_id(), parts=(part,))

    def read_request(self, raw_messages: list[Any]) -> None:
        """Read the messages of a request without those that the API ignores before a block."""
        visible = _cut_at_block(raw_messages)
        if visible is None:
            super().read_request(raw_messages)
            return
        head, block, tail = visible
        if not any(raw == block for raw in self._last_request):
            edit = self._on_demand.pop(_text_of(block), Edit(kind="summarised", method=BLOCK))
            self._compact(block, tail, edit)
        super().read_request([*head, block, *tail])

    def read_compaction_reply(self, response: dict[str, Any], time: float | None) -> list[Any]:
        """Read the compactions of a response; return its blocks after the last one.

        Args:
            response: the response.
            time: POSIX time at which it ended.
        """
        blocks = as_list(response.get("content"))
        at = _last_block(blocks)
        if at is None:
            return blocks
        iterations = [as_dict(i) for i in as_list(as_dict(response.get("usage")).get("iterations"))]
        usages = [self._parse_usage(i) for i in iterations if i.get("type") == BLOCK]
        rest = blocks[at + 1 :]
        if not usages and not rest:
            usages = [self._parse_usage(response.get("usage"))]
        usage = _add_usages([u for u in usages if u is not None])
        raw = _make_block(as_dict(blocks[at]))
        edit = Edit(
            kind="summarised",
            method=BLOCK,
            trigger="auto" if rest else "manual",
            time=time,
            usage=usage,
            model=str_or_none(response.get("model")) or self.model,
            tokens_before=usage.prompt_tokens if usage is not None else None,
        )
        if rest:
            self._compact(raw, [], edit)
        elif len(self._on_demand) < _MAX_WAITING:
            self._on_demand[_text_of(raw)] = edit
        return rest

    def close(self) -> None:
        """Add the summaries that no later request used, which were billed and changed nothing."""
        for edit in self._on_demand.values():
            self.log.add(
                msgspec.structs.replace(
                    edit, id=self.log.new_id(), reason="no later request holds the summary"
                )
            )

    def _compact(self, block: Any, tail: Sequence[Any], edit: Edit) -> None:
        """Replace the visible messages by a block, except the turns that follow it unchanged.

        Args:
            block: the raw summary.
            tail: raw messages of the request after it.
            edit: the edit without id, targets and inserted messages.
        """
        by_raw = dict(zip(map(id, self._last_request), self._ids_by_raw_message, strict=True))
        systems = [raw for raw in self._last_request if _is_system(raw)]
        n_repeated = _count_repeated(self._last_request[len(systems) :], tail)
        repeated = self._last_request[len(self._last_request) - n_repeated :] if n_repeated else []
        remaining_raws = [*systems, *repeated]
        remaining_ids = [i for raw in remaining_raws for i in by_raw[id(raw)]]
        summary = self.parse_message(block)[0]
        self._key_by_id[summary.id] = make_message_key(summary)
        self.log.compact(
            msgspec.structs.replace(edit, id=self.log.new_id(), inserted=(summary,)), remaining_ids
        )
        ids = [by_raw[id(raw)] for raw in remaining_raws]
        self._last_request = [*systems, block, *tail[:n_repeated]]
        self._ids_by_raw_message = [*ids[: len(systems)], [summary.id], *ids[len(systems) :]]

    def clear_results(self, request: dict[str, Any], response: dict[str, Any]) -> None:
        """Clear the oldest tool results that a response says the API left out of its prompt.

        Args:
            request: body of the request; its setting names tools whose results are never cleared.
            response: body of the response, with the numbers of cleared calls and tokens.
        """
        applied = as_list(as_dict(response.get("context_management")).get("applied_edits"))
        edits = [as_dict(e) for e in applied]
        clearings = [e for e in edits if as_str(e.get("type")).startswith("clear_tool_uses")]
        n_cleared = sum(count_or_none(e.get("cleared_tool_uses")) or 0 for e in clearings)
        if not n_cleared or not self.log.may_edit():
            return
        settings = as_list(as_dict(request.get("context_management")).get("edits"))
        excluded = {t for e in settings for t in as_list(as_dict(e).get("exclude_tools"))}
        entries = (self.log.entries[self.log.index_by_id[i]] for i in self.log.visible_ids)
        results = [
            m for m in entries if type(m) is Message and m.call_id and m.tool not in excluded
        ]
        targets = [m for m in results[:n_cleared] if m.id not in self._cleared_ids]
        if not targets:
            return
        self._cleared_ids |= {m.id for m in targets}
        freed = sum(count_or_none(e.get("cleared_input_tokens")) or 0 for e in clearings)
        self.log.add(
            Edit(
                kind="replaced",
                id=self.log.new_id(),
                targets=tuple(m.id for m in targets),
                inserted=tuple(
                    msgspec.structs.replace(m, parts=(Text(CLEARED_TEXT),)) for m in targets
                ),
                method=as_str(clearings[0].get("type")),
                trigger="auto",
                details={"cleared_input_tokens": freed} if freed else {},
            )
        )


def _is_system(raw: Any) -> bool:
    return type(raw) is dict and raw.get("role") == "system"


def _last_block(blocks: Sequence[Any]) -> int | None:
    """Return the position of the last compaction block; None without one."""
    places = range(len(blocks) - 1, -1, -1)
    return next((i for i in places if as_dict(blocks[i]).get("type") == BLOCK), None)


def _make_block(block: dict[str, Any]) -> dict[str, Any]:
    """Return a compaction block as a raw message."""
    content = block.get("content")
    if type(content) is list:
        content = "\n".join(as_str(as_dict(part).get("text")) for part in content)
    return {"role": _SUMMARY_ROLE, "content": as_str(content)}


def _text_of(raw: dict[str, Any]) -> str:
    return as_str(raw.get("content"))


def _cut_at_block(raw_messages: list[Any]) -> tuple[list[Any], dict[str, Any], list[Any]] | None:
    """Return system messages, the last block, and what follows it; None without a block."""
    for place in range(len(raw_messages) - 1, -1, -1):
        raw = as_dict(raw_messages[place])
        content = as_list(raw.get("content"))
        at = _last_block(content)
        if at is not None:
            rest = content[at + 1 :]
            tail = [{**raw, "content": rest}] if rest else []
            head = [r for r in raw_messages[:place] if _is_system(r)]
            return head, _make_block(content[at]), [*tail, *raw_messages[place + 1 :]]
    return None


def make_raw_message_key(raw: Any) -> Any:
    """Return role and content of a raw message, without marks that may change between requests."""
    content = as_dict(raw).get("content")
    blocks = [{"type": "text", "text": content}] if type(content) is str else as_list(content)
    marks = {"cache_control"}
    return as_dict(raw).get("role"), [
        {k: v for k, v in as_dict(b).items() if k not in marks} for b in blocks
    ]


def _count_repeated(old: Sequence[Any], new: Sequence[Any]) -> int:
    """Return the largest number of last `old` messages with which `new` begins. O(n) comparisons.

    The prefix function of Knuth, Morris and Pratt over `new` as the pattern, run along `old`.
    """
    pattern = [make_raw_message_key(raw) for raw in new]
    if not pattern:
        return 0
    border = [0] * len(pattern)
    matched = 0
    for i in range(1, len(pattern)):
        while matched and pattern[i] != pattern[matched]:
            matched = border[matched - 1]
        matched += pattern[i] == pattern[matched]
        border[i] = matched
    matched = 0
    for key in map(make_raw_message_key, old):
        if matched == len(pattern):
            matched = border[matched - 1]
        while matched and key != pattern[matched]:
            matched = border[matched - 1]
        matched += key == pattern[matched]
    return matched


def _add_usages(usages: Sequence[Usage]) -> Usage | None:
    """Return the sum of usages, class by class; a class that none states stays None."""
    if not usages:
        return None
    names = (
        "input_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens",
        "output_tokens",
    )  # fmt: skip
    values = {name: [n for u in usages if (n := getattr(u, name)) is not None] for name in names}
    return Usage(**{name: sum(counts) for name, counts in values.items() if counts})
