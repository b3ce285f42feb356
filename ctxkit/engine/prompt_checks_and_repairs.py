"""Checks of prompts by the provider's rules, and the guard that repairs what is sent."""

from __future__ import annotations

from itertools import accumulate, chain
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ctxkit.engine.run_segments_and_prompts import build_sent_items, list_sent_messages
from ctxkit.formats.chat_completions_conversion import MISSING_RESULT
from ctxkit.policies.history.edited_head import SizeOnlySummary
from ctxkit.policies.history.history import History
from ctxkit.session.messages import Edit, Message, Text, Thinking
from ctxkit.tokens.provider_rules import DatedProviderRule, describe_cache_rules, find_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from ctxkit.engine.run_segments_and_prompts import RunLike
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.session import Session

# Signed thinking is bound to what came before it when it was made. Whether that still holds needs
# no signature: of two prompts in a row let the first n messages be equal. If n is the whole earlier
# prompt, nothing before any block has changed. Else every block behind the first n is bound to
# another conversation, the reply to the earlier prompt among them, and it stays so
# (`PromptRepairer`).
# A summary that the API itself wrote leaves the thinking behind it valid.
#
# The guard is a step after the rules. `ck.fit`, `ck.Context` and live sessions send what it
# returns; a replay keeps what the real program sends, and `count_refused_calls` counts the calls
# that would be refused.

OPENING = "(earlier messages were left out)"
"""Text of the user's message that is put first where a provider refuses a reply there."""
MAX_BREAKPOINTS = 4
_UNKNOWN_MODEL_RULES = frozenset(
    {"changed_thinking", "orphan_tool_call", "orphan_tool_result", "too_many_breakpoints"}
)
"""Refusals that are avoided where no rule is known for the model: avoiding them does no harm."""


class ProviderRefusal(NamedTuple):
    """One reason for which a provider would refuse a prompt."""

    rule: str
    """Name of the refusal in `tokens.provider_rules`."""
    position: int
    """Index of the message."""
    sentence: str
    source: str
    """Address of the page that documents it."""


def find_refusals(
    messages: Sequence[Message],
    model: str | None,
    *,
    stale_thinking_ids: AbstractSet[str] = frozenset(),
) -> list[ProviderRefusal]:
    """Return why a provider would refuse a prompt; empty where it would not, or no rule is known.

    Args:
        messages: the prompt.
        model: the model's name.
        stale_thinking_ids: ids of replies whose signed thinking is bound to another conversation
            (`PromptRepairer.stale`).
    """
    rules = {r.value: r for r in find_rules("refuses", model)}
    problems = [*_find_orphans(messages), *_find_first_role(messages)]
    problems += [
        ("changed_thinking", i, "signed thinking whose conversation has changed")
        for i, m in enumerate(messages)
        if m.id in stale_thinking_ids and has_signed_thinking(m)
    ]
    return [
        ProviderRefusal(name, i, f"Message {i}: {words}.", rules[name].source)
        for name, i, words in sorted(problems, key=lambda item: item[1])
        if name in rules
    ]


def _find_orphans(messages: Sequence[Message]) -> Iterable[tuple[str, int, str]]:
    call_ids = set[str]()
    answered = {m.call_id for m in messages if m.role == "tool"}
    for i, message in enumerate(messages):
        if message.role == "tool" and message.call_id and message.call_id not in call_ids:
            yield "orphan_tool_result", i, "a result whose call is not in the prompt"
        for call in message.tool_calls:
            call_ids.add(call.id)
            if call.id not in answered:
                yield "orphan_tool_call", i, "a tool call without its result"


def _find_first_role(messages: Iterable[Message]) -> Iterable[tuple[str, int, str]]:
    for i, message in enumerate(messages):
        if message.sent_as == "system":  # the part of a replay that no message holds, too
            continue
        if message.sent_as != "user":
            yield "first_role", i, "the first message is not the user's"
        return


def describe_provider_rules(model: str | None) -> str:
    """Return a sentence on the rules by which a prompt for a model is checked."""
    rules = find_rules("refuses", model)
    if not rules:
        return describe_cache_rules(model)
    return f"Held against {', '.join(r.value for r in rules)} ({rules[-1].source})."


def has_signed_thinking(message: Message) -> bool:
    """Return whether a reply holds thinking with a provider's signature."""
    return any(isinstance(p, Thinking) and p.signature for p in message.parts)


class PromptRepairer:
    """Follows the prompts of one conversation, and repairs those that the provider would refuse.

    Args:
        model: the model's name; None: unknown.
        keeps_thinking: the provider's API writes the summaries, so that thinking stays valid.
    """

    def __init__(self, model: str | None, *, keeps_thinking: bool = False) -> None:
        rules: list[DatedProviderRule] = find_rules("refuses", model)
        self._refused = {r.value for r in rules} or _UNKNOWN_MODEL_RULES
        self._keeps_thinking = keeps_thinking
        self._last: tuple[Any, ...] = ()
        self.stale = set[str]()
        """Ids of replies whose signed thinking is bound to another conversation."""
        self.dropped_n = 0
        """Replies whose thinking was left out of the last prompt."""

    def follow(self, prompt: Sequence[Message]) -> None:
        """Record the next prompt of the rules, before any repair."""
        shared = count_common_prefix(self._last, prompt)
        if shared < len(self._last) and not self._keeps_thinking:
            self.stale.update(m.id for m in prompt[shared:] if has_signed_thinking(m))
        self._last = tuple(prompt)

    def apply(self, prompt: Sequence[Message]) -> tuple[Message, ...]:
        """Return the next prompt without what the provider would refuse."""
        self.follow(prompt)
        self.dropped_n = 0
        out = [self._without_stale_thinking(m) for m in prompt]
        if "first_role" in self._refused:
            for _, i, _words in _find_first_role(out):
                out.insert(i, Message(role="user", kind="injected", parts=(Text(OPENING),)))
        return tuple(out)

    def _without_stale_thinking(self, message: Message) -> Message:
        is_stale = message.id in self.stale and "changed_thinking" in self._refused
        if not is_stale or not has_signed_thinking(message):
            return message
        self.dropped_n += 1
        return replace(
            message, parts=tuple(p for p in message.parts if not isinstance(p, Thinking))
        )


def find_thinking_before_last_compaction(session: Session) -> set[str]:
    """Return the ids of the replies whose thinking is older than the last compaction of the log."""
    edits = [i for i, e in enumerate(session.path) if isinstance(e, Edit)]
    before = session.path[: edits[-1]] if edits else ()
    return {e.id for e in before if isinstance(e, Message) and has_signed_thinking(e)}


def count_refused_calls(session: Session, run: RunLike) -> int | None:
    """Return at how many calls of a replay the provider would refuse the prompt.

    A replay sends what the real program sends; this counts what the guard would mend. Prompts are
    built where one does not merely continue from the one before: at compactions, and at each call
    under a pruning where the log has signed thinking.

    Args:
        session: the recorded session.
        run: the run of the rules.

    Returns:
        The number; None where no rule is known for the session's model.
    """
    model, refused, binds_thinking = _get_refusal_rules(session)
    if not refused:
        return None
    begin, stop, is_pruned = run.begin, run.call, run.rules.pruning is not None
    if not binds_thinking and not is_pruned and _has_only_whole_prompts(run, refused):
        return 0  # nearly all runs of a sweep end here
    histories = {begin: History.start(run.log)}  # in the order of their calls
    for compaction in run.compactions:
        call = compaction.call
        histories[call if call > begin else begin] = compaction.new  # noqa: FURB136  in half the time
    if binds_thinking:
        keeps_thinking = has_api_written_summaries(run.rules.policy)
        guard = PromptRepairer(model, keeps_thinking=keeps_thinking)
        calls = {*histories, *(call - 1 for call in histories if call > begin)}
        if is_pruned:
            calls.update(range(begin, stop))
        checked = sorted(call for call in calls if call < stop)
        refused_calls = [
            call for call in checked if _is_refused_with_thinking(run, guard, model, call)
        ]
    else:  # nothing can become stale, so no prefix is compared
        pairs = _ToolPairs.of(run.log)
        checked = [call for call in histories if call < stop]
        refused_calls = [
            call
            for call in checked
            if (is_pruned or not _is_whole_prompt(histories[call], call, refused, pairs))
            and find_refusals(list_sent_messages(run, call), model)
        ]
    if not refused_calls:
        return 0
    ends = dict(zip(checked, [*checked[1:], stop], strict=True))
    return sum(ends[call] - call for call in refused_calls)


class _RefusalRules(NamedTuple):
    """What is refused of the prompts of a record; equal for all its replays."""

    model: str | None
    refused: frozenset[str]
    """Names of the rules; empty: none is known for the model."""
    binds_thinking: bool
    """True where they refuse signed thinking whose conversation changed, and the record has any."""


def _get_refusal_rules(session: Session) -> _RefusalRules:
    """Return the rules for a record's prompts; cached in the session, whose log never changes."""
    cached: _RefusalRules | None = session.__dict__.get("refusal rules")
    if cached is None:
        models = (c.message.model for c in session.calls if c.message.model)
        model = session.model or next(models, None)
        refused = frozenset(r.value for r in find_rules("refuses", model))
        binds = "changed_thinking" in refused and any(map(has_signed_thinking, session.messages))
        cached = session.__dict__["refusal rules"] = _RefusalRules(model, refused, binds)
    return cached


def _is_refused_with_thinking(
    run: RunLike, guard: PromptRepairer, model: str | None, call: int
) -> bool:
    prompt = [item.message for item in build_sent_items(run, call)]
    guard.follow(prompt)
    return bool(find_refusals(prompt, model, stale_thinking_ids=guard.stale))


def _has_only_whole_prompts(run: RunLike, refused: AbstractSet[str]) -> bool:
    """Return True where the first prompt of an unpruned run and those after its compactions are
    whole (`_is_whole_prompt`); False: one may not be, or was in force before the run began.
    """
    begin, stop, pairs = run.begin, run.call, _ToolPairs.of(run.log)
    if begin < stop and not pairs.is_whole_beginning(run.log.upto[begin], refused):
        return False
    for compaction in run.compactions:
        call = compaction.call
        if call < begin or (
            call < stop and not _is_whole_prompt(compaction.new, call, refused, pairs)
        ):
            return False
    return True


def _is_whole_prompt(
    history: History, call: int, refused: AbstractSet[str], pairs: _ToolPairs
) -> bool:
    """Return True where an unpruned prompt surely parts no tool call from its result, and begins as
    the provider demands: by columns of the log, without a look at each message.

    The messages before the log's tail, and the tail itself, are each complete then.

    Args:
        history: the history in force at the call; it may have been made before another one.
        call: the call of the prompt.
        refused: the rules of the provider.
        pairs: the pairs of the log.
    """
    head, start, stop = history.head, history.lo, history.log.upto[call]
    if not head.size and not start:
        return pairs.is_whole_beginning(stop, refused)
    if pairs.lone[start] != pairs.lone[stop]:
        return False
    if head.size == 1 and type(head.items[0].source) is SizeOnlySummary:
        return True  # a message without tool calls that is sent as the user's: it is not built
    log = history.log
    messages = head.messages(log)
    if messages and any(_find_orphans(messages)):
        return False
    if "first_role" not in refused:
        return True
    tail = map(log.messages.__getitem__, range(start, stop))
    return not any(_find_first_role(chain(messages, tail)))


class _ToolPairs(NamedTuple):
    """Which rows of a log are tool calls and results without each other, and which cuts part them;
    and whether the log begins with a reply.

    The last call before a result is its own, and the first result behind a call.
    """

    lone: list[float]
    """For each row, and for the end, the number of rows before it that lack a result or a call, or
    not a number where a cut before it parts a call from its result. So the rows between two equal
    numbers surely have what they need among themselves.
    """
    first_reply: int
    """Row of the first message that is not the system's, where it is not the user's; else the
    number of rows.
    """

    @classmethod
    def of(cls, log: MessageLog) -> _ToolPairs:
        """Return the pairs of a log, cached there until it grows."""
        cached: _ToolPairs | None = log.memo.get("tool pairs")
        if cached is None or len(cached.lone) != len(log.messages) + 1:
            cached = log.memo["tool pairs"] = cls.find(log.messages)
        return cached

    @classmethod
    def find(cls, messages: Sequence[Message]) -> _ToolPairs:
        """Return the pairs of messages in order."""
        n, calls_of_row = len(messages), [message.tool_calls for message in messages]
        is_lone, spans = [0] * n, list[tuple[int, int]]()
        call_rows, result_rows = dict[str, int](), dict[str | None, int]()
        for row, message in enumerate(messages):
            if message.role == "tool" and message.call_id:
                call_row = call_rows.get(message.call_id)
                is_lone[row] |= call_row is None
                spans.append((row if call_row is None else call_row, row))
            for call in calls_of_row[row]:
                call_rows[call.id] = row
        for row in range(n - 1, -1, -1):
            message = messages[row]
            for call in calls_of_row[row]:
                result_row = result_rows.get(call.id)
                is_lone[row] |= result_row is None
                spans.append((row, row if result_row is None else result_row))
            if message.role == "tool":
                result_rows[message.call_id] = row
        changes = [0] * (n + 2)
        for first, last in spans:  # a cut before one of the rows first + 1..last parts them
            changes[first + 1] += 1
            changes[last + 1] -= 1
        lone = [
            nan if parted else lone_n
            for parted, lone_n in zip(
                accumulate(changes[: n + 1]), [0, *accumulate(is_lone)], strict=True
            )
        ]
        first_reply = next((row for _, row, _ in _find_first_role(messages)), n)
        return cls(lone, first_reply)

    def is_whole_beginning(self, stop: int, refused: AbstractSet[str]) -> bool:
        """Return whether the rows before `stop` surely are a prompt that no rule refuses."""
        begins_well = stop <= self.first_reply or "first_role" not in refused
        return begins_well and self.lone[0] == self.lone[stop]


def count_common_prefix(before: Sequence[Any], after: Sequence[Any]) -> int:
    """Return the number of first items that are equal in two prompts.

    Args:
        before: the items of the earlier prompt.
        after: those of the later one.

    Returns:
        The length of the longest common prefix.
    """
    pairs = enumerate(zip(before, after, strict=False))
    n = min(len(before), len(after))
    return next((i for i, (a, b) in pairs if a is not b and a != b), n)


class ChatPromptRepairer:
    """A `PromptRepairer` for Chat Completions dicts, with cache marks and missing results.

    Args:
        model: the model's name; None: unknown.
        keeps_thinking: as for `PromptRepairer`.
    """

    def __init__(self, model: str | None, *, keeps_thinking: bool = False) -> None:
        rules = find_rules("refuses", model)
        self._refused = {r.value for r in rules} or _UNKNOWN_MODEL_RULES
        self._keeps_thinking = keeps_thinking
        self._last: list[dict[str, Any]] = []
        self._stale = set[str]()
        """Signatures of thinking that is bound to another conversation."""
        self.notes: tuple[str, ...] = ()
        """Repairs of the last prompt, in sentences."""

    @property
    def is_new(self) -> bool:
        """True before the first prompt."""
        return not self._last

    def apply(self, prompt: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the next prompt of the rules without what the provider would refuse."""
        shared = count_common_prefix(self._last, prompt)
        if shared < len(self._last) and not self._keeps_thinking:
            self._stale.update(s for m in prompt[shared:] for s in _find_signatures(m))
        self._last = list(prompt)
        notes: list[str] = []
        out = self._drop_stale_thinking(prompt, notes)
        if "orphan_tool_call" in self._refused:
            out = _add_missing_results(out, notes)
        if "too_many_breakpoints" in self._refused:
            out = _drop_breakpoints(out, notes)
        if "first_role" in self._refused:
            first = next((i for i, m in enumerate(out) if not _is_system(m)), None)
            if first is not None and out[first].get("role") in ("assistant", "tool"):
                out = [*out[:first], {"role": "user", "content": OPENING}, *out[first:]]
                notes.append("A user's message was put before the first reply.")
        self.notes = tuple(notes)
        return out

    def _drop_stale_thinking(
        self, prompt: list[dict[str, Any]], notes: list[str]
    ) -> list[dict[str, Any]]:
        if "changed_thinking" not in self._refused:
            return list(prompt)
        stale = self._stale
        out = [_without_thinking(m) if stale & _find_signatures(m) else m for m in prompt]
        n = sum(a is not b for a, b in zip(out, prompt, strict=True))
        if n:
            notes.append(
                f"Signed thinking was left out of {n} repl{'y' if n == 1 else 'ies'}: what stood"
                " before it has changed, and the provider refuses it then."
            )
        return out


def _is_system(raw: dict[str, Any]) -> bool:
    return raw.get("role") in ("system", "developer")


def _blocks(raw: dict[str, Any]) -> list[dict[str, Any]]:
    content = raw.get("content")
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []


_THINKING_TYPES = ("thinking", "redacted_thinking")


def _find_signatures(raw: dict[str, Any]) -> set[str]:
    """Return the signatures of a reply's thinking blocks, sealed ones by their data."""
    if raw.get("role") != "assistant":
        return set()
    blocks = [*_blocks(raw), *(raw.get("thinking_blocks") or ())]
    signatures = (
        b.get("signature") or b.get("data")
        for b in blocks
        if isinstance(b, dict) and b.get("type") in _THINKING_TYPES
    )
    return {s for s in signatures if isinstance(s, str)}


def _without_thinking(raw: dict[str, Any]) -> dict[str, Any]:
    out = {k: v for k, v in raw.items() if k != "thinking_blocks"}
    if _blocks(raw):
        out["content"] = [b for b in raw["content"] if b.get("type") not in _THINKING_TYPES]
    return out


def _add_missing_results(prompt: list[dict[str, Any]], notes: list[str]) -> list[dict[str, Any]]:
    """Answer each call that has no result in the prompt; the last message's calls may wait."""
    answered = {m.get("tool_call_id") for m in prompt if m.get("role") == "tool"}
    out: list[dict[str, Any]] = []
    for message in prompt:
        out.append(message)
        missing = [
            c.get("id")
            for c in (message.get("tool_calls") or ())
            if isinstance(c, dict) and c.get("id") not in answered
        ]
        if message is prompt[-1] or not missing:
            continue
        out += [{"role": "tool", "tool_call_id": i, "content": MISSING_RESULT} for i in missing]
        notes.append("A tool call without its result was answered by a note.")
    return out


def _drop_breakpoints(prompt: list[dict[str, Any]], notes: list[str]) -> list[dict[str, Any]]:
    """Keep the first cache mark and the last three, which read and write what grows."""
    marked = [i for i, m in enumerate(prompt) for b in _blocks(m) if "cache_control" in b]
    if len(marked) <= MAX_BREAKPOINTS:
        return prompt
    kept = [marked[0], *marked[-(MAX_BREAKPOINTS - 1) :]]
    notes.append(f"Of {len(marked)} cache marks {MAX_BREAKPOINTS} were kept, as many as are taken.")
    out = list(prompt)
    for i in sorted(set(marked)):
        n_kept = kept.count(i)
        blocks, left = list(prompt[i]["content"]), n_kept
        for at in range(len(blocks) - 1, -1, -1):
            if isinstance(blocks[at], dict) and "cache_control" in blocks[at]:
                left -= 1
                if left < 0:
                    blocks[at] = {k: v for k, v in blocks[at].items() if k != "cache_control"}
        out[i] = {**prompt[i], "content": blocks}
    return out


def has_api_written_summaries(policy: object) -> bool:
    """Return whether the provider's own API writes a policy's summaries."""
    return bool(getattr(policy, "is_written_by_api", False))
