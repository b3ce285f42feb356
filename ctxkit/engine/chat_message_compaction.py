"""Context rules in the agent loop of any framework: `ck.fit`, `ck.Context`, and a history processor
for pydantic-ai.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter, OrderedDict
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ctxkit.engine import RulesRun, advance_run, interleave_edits
from ctxkit.engine.prompt_checks_and_repairs import ChatPromptRepairer, has_api_written_summaries
from ctxkit.engine.sent_prompts import PruningRecorder, SentPrompts
from ctxkit.errors import BadArguments, short_repr
from ctxkit.formats.chat_message_and_usage_parsers import parse_usage
from ctxkit.formats.conversations_from_requests import ChatConversation
from ctxkit.formats.openai import encode_chat_message
from ctxkit.policies.history.history import History
from ctxkit.policies.history.message_log import MessageLog
from ctxkit.policies.offline_summarisers import may_call_model
from ctxkit.policies.policy_base_and_chains import apply_policy
from ctxkit.policies.summary_compaction import iter_summary_writers
from ctxkit.policies.unpruned_prompt_forecast import UnprunedForecast
from ctxkit.presets.registry_and_setting_checks import resolve_rules
from ctxkit.session.compactions_and_prunings import PromptPruningState
from ctxkit.session.messages import Edit, Usage
from ctxkit.session.session import Session
from ctxkit.tokens.token_counters import default_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.history.edited_head import HeadItem
    from ctxkit.presets.registry_and_setting_checks import RulesLike
    from ctxkit.session.messages import Message


ChatMessage = dict[str, Any]
_MAX_LISTS = 16
"""Maximum number of message lists that are remembered."""
_WARN_AFTER = 3
"""Compactions at consecutive calls after which a warning is given."""


def fit(
    messages: Sequence[ChatMessage],
    rules: RulesLike,
    *,
    limit: int | None = None,
    model: str | None = None,
) -> list[ChatMessage]:
    """Compact a list of chat messages for one call, if the rules say so.

    Earlier calls are not remembered. So guards have no effect, and a growing list is compacted
    again at each call: its prompts begin differently each time, and no cache can serve them. In a
    loop use `Context`, which remembers, or replace your list by the result. The second compaction
    of one list warns.

    After the rules a guard takes out what the provider is documented to refuse
    (`engine.prompt_checks_and_repairs`), such as signed thinking behind a change, and warns.

    Args:
        messages: Chat Completions messages, oldest first: everything before the next call. The
            `name` of a reply is the agent that wrote it.
        rules: rules, a preset or its name, a policy (always run) or its text form.
        limit: the model's context window, in tokens, where the rules have none.
        model: the model that is called, whose provider's rules hold; None: what any provider takes.

    Returns:
        The messages to send. Those that are unchanged are the same dict objects.

    Raises:
        BadArguments: an item is no message, or the rules cannot work.
        UnsoundHistory: a policy separated a tool call from its result.

    Example:
        >>> import ctxkit as ck
        >>> messages = [{"role": "user", "content": "Hello"}]
        >>> ck.fit(messages, "pi", limit=100_000) == messages
        True
    """
    rules = resolve_rules(rules, once=True)
    conversation = _Conversation(rules)
    conversation.add(messages)
    log = conversation.log
    call = log.open()
    history = History.start(log, call)
    budget = rules.context_budget(log, limit)
    if rules.policy is not None and rules.trigger is not None and rules.auto:
        is_due = rules.trigger.first(UnprunedForecast(history, budget), call, call + 1) == call
        new = apply_policy(rules.policy, history, budget) if is_due else history
        if new is not history and _COMPACTED_LISTS.is_repeated(messages):
            warnings.warn(REPEATED_FIT_WARNING, stacklevel=2)
        history = new
    if rules.pruning is not None:
        history = apply_policy(rules.pruning, history, budget)
    guard = ChatPromptRepairer(model, keeps_thinking=has_api_written_summaries(rules.policy))
    guard.apply(list(messages))  # as it was made: the list only grew
    prompt = guard.apply(conversation.to_dicts(history))
    if guard.notes:
        warnings.warn(" ".join(guard.notes), stacklevel=2)
    return prompt


class _CompactedLists:
    """Identities of the lists that were compacted last, without keeping any of them alive."""

    def __init__(self) -> None:
        self._message_ids: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._lock = Lock()

    def is_repeated(self, messages: Sequence[ChatMessage]) -> bool:
        """Record a compacted list; return whether it was before, and has only grown since."""
        with self._lock:
            before = self._message_ids.pop(id(messages), None)
            now = tuple(map(id, messages))
            self._message_ids[id(messages)] = now
            while len(self._message_ids) > _MAX_LISTS:
                self._message_ids.popitem(last=False)
        return before is not None and len(now) > len(before) and now[: len(before)] == before


_COMPACTED_LISTS = _CompactedLists()
REPEATED_FIT_WARNING = (
    "ck.fit compacted this growing list again, as it remembers nothing: each prompt begins "
    "differently, and no cache can serve it. Write `context = ck.Context(rules)` once before the "
    "loop, and `context.fit(messages)` in the place of `ck.fit(messages, rules)`."
)
"""The warning when one list is compacted a second time."""


class Context:
    """The context of an agent under rules; it remembers sent prompts and compactions.

    In a loop::

        context = Context(rules)
        while ...:
            reply = client.chat(messages=context.fit(messages))
            messages.append(reply)  # your own list, which only grows

    or ``context.add(message)`` for each message and ``context.fit()`` before each call. `tokens`,
    `limit` and `edits` are its state; `session` is an ordinary session for frames and plots, with
    the prompts that `fit` returned.

    It warns once of a prompt over the limit, of a summary that no model wrote, and of rules that
    compact at each call.

    Args:
        rules: rules, a preset or its name, a policy (always run) or its text form.
        limit: the model's context window, in tokens, where the rules have none.
        name: id of the session.
        model: the model that is called, as for `fit`.

    Example:
        >>> import ctxkit as ck
        >>> context = ck.Context("pi", limit=100_000)
        >>> prompt = context.fit([{"role": "user", "content": "Hello"}])
        >>> len(prompt), context.edits
        (1, ())
    """

    def __init__(
        self,
        rules: RulesLike,
        *,
        limit: int | None = None,
        name: str = "context",
        model: str | None = None,
    ) -> None:
        self.rules = resolve_rules(rules)
        self._guard = ChatPromptRepairer(
            model, keeps_thinking=has_api_written_summaries(self.rules.policy)
        )
        self.name = name
        self._conversation = _Conversation(self.rules)
        self.run = RulesRun(self._conversation.log, self.rules, limit)
        self._prompts = SentPrompts()
        self._prompts.begin(self.run)
        self._pruning_recorder = PruningRecorder(PromptPruningState())
        self._pruning_of_call: dict[int, dict[str, Any]] = {}
        """What prunings changed of each prompt, as details of its reply."""
        self._added: list[ChatMessage] = []
        self._last_prompt: list[ChatMessage] = []
        self._is_open = False
        """Whether the next call is opened."""
        self._usage_of_call: dict[int, Usage] = {}
        self._issued_warnings: set[str] = set()

    def add(self, *messages: ChatMessage) -> Context:
        """Add messages in order; return the context."""
        for message in messages:
            self._conversation.add([message])
            self._added.append(message)
        self._is_open = self._is_open and not messages
        return self

    def fit(
        self, messages: Sequence[ChatMessage] | None = None, *, usage: Any = None
    ) -> list[ChatMessage]:
        """Return the messages to send at the next call, compacted if the rules say so.

        Messages that are unchanged come back as the same dict objects.

        Args:
            messages: your list with all messages so far, or the list that the last `fit` returned
                plus the messages since; None: what was added by `add`.
            usage: what the provider billed for the prompt that the last `fit` returned: its prompt
                tokens, a `Usage`, or the usage of the reply as a dict or an object of the
                provider's client. Sizes of later prompts go by it; None: they are counts.

        Raises:
            BadArguments: the list is neither; begin a new context for another conversation. Or the
                usage holds no prompt tokens, or `fit` was not called before.
        """
        if messages is not None:
            self.add(*self._new_messages(messages))
        if usage is not None:
            self._anchor_sizes(usage)
        if not self._is_open:
            log = self._conversation.log
            if log.replies and log.replies[-1] is None:
                self._pruning_recorder.forget_last()  # no reply came that could record it
            n_compactions = len(self.run.compactions)
            log.open()
            self._is_open = True
            advance_run(self.run, self.rules, log.calls)
            if len(self.run.compactions) > n_compactions:
                log.fixed = 0  # the last usage was measured on another prompt
            self._pruning_of_call[log.calls - 1] = self._pruning_recorder.record(self._prompts)
            self._warn(n_compactions)
            if self._guard.is_new:  # what was said before came after its own prompts
                self._guard.apply(list(self._added))
            self._last_prompt = self._guard.apply(
                self._conversation.to_dicts(self.run.last_prompt())
            )
        return list(self._last_prompt)

    @property
    def guard_notes(self) -> tuple[str, ...]:
        """What the provider's rules took out of the last prompt, in sentences; empty: nothing."""
        return self._guard.notes

    def _anchor_sizes(self, usage: Any) -> None:
        """Correct the sizes of later prompts by what the last prompt was billed."""
        call, log = self.run.call - 1, self._conversation.log
        billed = _parse_usage(usage)
        if call < 0 or billed is None or not billed.prompt_tokens:
            raise BadArguments(
                "Pass `usage` with the prompt tokens that the provider reported for the prompt of"
                f" the last `fit`, not {short_repr(usage)}."
            )
        if call in self._usage_of_call:
            return
        self._usage_of_call[call] = billed
        size = self.run.sizes(call, call + 1)[0]
        log.bill_extra(billed.prompt_tokens - size)
        log.fixed = billed.prompt_tokens - (size - log.fixed_at[call])

    def _warn(self, n_compactions_before: int) -> None:
        """Warn of a prompt over the limit, of an extract as summary, and of rules that compact at
        each call; of each once.
        """
        last_calls = [compaction.call for compaction in self.run.compactions[-_WARN_AFTER:]]
        size = self.run.sizes(self.run.call - 1, self.run.call)[0]
        if size > self.limit:
            self._warn_once(
                f"This prompt has {size:,} tokens, and the limit is {self.limit:,}: a provider"
                " refuses or cuts a prompt over its window. Give the rules"
                f" ({self.rules.label}) a lower trigger or a pruning of tool results, or pass"
                " `usage=` to `fit` so that sizes go by the provider's own counts."
            )
        written = [
            e
            for compaction in self.run.compactions[n_compactions_before:]
            for e in compaction.edits
        ]
        writers = [] if self.rules.policy is None else list(iter_summary_writers(self.rules.policy))
        has_summary = any(m.role == "summary" for e in written for m in e.inserted)
        if has_summary and writers and not any(map(may_call_model, writers)):
            self._warn_once(
                "No model wrote this summary: it is an extract of the messages that it replaces."
                " Pass a function (passage) -> text that asks a model:"
                " `ck.Context(ck.presets.pi(summariser=write_summary))`, or the same with another"
                " preset or `ck.policies.Rules`."
            )
        if last_calls == [*range(self.run.call - _WARN_AFTER, self.run.call)]:
            self._warn_once(
                f"The rules {self.rules.label} compact at each call, so no cache can serve a"
                " prompt: give them a trigger, such as `Rules(policy=...,"
                " trigger=triggers.Share(share=0.75))` of `ctxkit.policies`."
            )

    def _warn_once(self, text: str) -> None:
        kind = text.split(maxsplit=2)[0]
        if kind not in self._issued_warnings:
            self._issued_warnings.add(kind)
            warnings.warn(text, stacklevel=4)

    def _new_messages(self, messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
        for before in (self._added, self._last_prompt):
            n = len(before)
            if len(messages) >= n and all(
                a is b or a == b for a, b in zip(before, messages, strict=False)
            ):
                return messages[n:]
        raise BadArguments(
            "These messages do not go on from those of the last call: pass a list that only grows, "
            "or begin a new Context."
        )

    @property
    def tokens(self) -> int:
        """Tokens of the next prompt, as if nothing were compacted before it."""
        return self.run.coming().tokens

    @property
    def limit(self) -> int:
        """The context window, in tokens."""
        return self.run.budget.limit

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The compactions so far, in order."""
        return self.run.edits

    @property
    def session(self) -> Session:
        """A session of all messages, compactions and prompts so far, for frames and plots."""
        log = tuple(
            map(self._with_pruning, interleave_edits(self._conversation.messages, self.run))
        )
        session = Session(
            id=self.name,
            format="live",
            log=log,
            context_window=self.limit,
            tools=self._conversation.chat.tools,
        )
        return session.set_prompt_source(self._prompts.of(session))

    def _with_pruning(self, entry: Message | Edit) -> Message | Edit:
        """Return an entry of the session; a reply with the pruning and the usage of its prompt."""
        if isinstance(entry, Edit) or entry.role != "assistant":
            return entry
        place = self._prompts.find(entry)
        if place is None:
            return entry
        details = {**entry.details, **self._pruning_of_call.get(place[1], {})}
        usage = self._usage_of_call.get(place[1], entry.usage)
        return msgspec.structs.replace(entry, details=details, usage=usage)

    def __repr__(self) -> str:
        n_compactions = len(self.run.compactions)
        return (
            f"<Context {self.rules.label}: {len(self._added)} messages, {self.tokens:,} of"
            f" {self.limit:,} tokens, {self.run.call} calls, {n_compactions}"
            f" compaction{'' if n_compactions == 1 else 's'}>"
        )


def _parse_usage(usage: Any) -> Usage | None:
    """Return a provider's usage in disjoint classes; None where it holds none."""
    if isinstance(usage, Usage):
        return usage
    if isinstance(usage, int) and not isinstance(usage, bool):
        return Usage(input_tokens=usage) if usage > 0 else None
    as_plain = getattr(usage, "model_dump", None) or getattr(usage, "dict", None)
    return parse_usage(as_plain() if callable(as_plain) else usage)


class _Conversation:
    """Chat dicts as rows of a message log, and back.

    One dict may become several messages. It comes back as the same object only where all of them
    are in the prompt unchanged.
    """

    def __init__(self, rules: Rules) -> None:
        self.chat = ChatConversation("openai")
        self.log = MessageLog(rules.counter or default_counter(), estimator=rules.estimator)
        self.log.turn.in_items = True
        self.messages: list[Message] = []
        self._dicts: list[ChatMessage] = []
        self._dict_of: dict[str, int] = {}
        """Index of the dict that a message comes from, by message id."""
        self._n_messages: list[int] = []
        """Messages of each dict."""
        self._call_ids: set[str] = set()
        """Ids of all tool calls."""

    def add(self, raws: Sequence[ChatMessage]) -> None:
        """Add dicts; BadArguments for one that is no message."""
        for raw in raws:
            messages = self.chat.parse_message(raw, **_author(raw))
            n = len(self._dicts)
            if not messages:
                raise BadArguments(
                    f"Message {n} is none: expected a dict with a known role and content, got"
                    f" {raw!r:.80}."
                )
            for message in messages:
                self._dict_of[message.id] = n
                self._call_ids.update(c.id for c in message.tool_calls)
                self.log.append(message)
                self.messages.append(message)
            self._n_messages.append(len(messages))
            self._dicts.append(raw)

    def to_dicts(self, history: History) -> list[ChatMessage]:
        """Return a history as dicts, the added ones where nothing was changed."""
        items = list(self._without_orphans(history.item(p) for p in range(len(history))))
        unchanged: Counter[int] = Counter(
            self._index_of(item) for item in items if item.source is None
        )
        out: list[ChatMessage] = []
        whole: set[int] = set()
        """Dicts that are in `out` as they were added."""
        for item in items:
            index = self._index_of(item) if item.row >= 0 else -1
            if item.source is None and unchanged[index] == self._n_messages[index]:
                if index not in whole:
                    whole.add(index)
                    out.append(self._dicts[index])
                continue
            new = encode_chat_message(item.message(self.log))
            if index >= 0 and self._n_messages[index] == 1:
                new = _merge_dict(self._dicts[index], new)
            out.append(new)
        return out

    def _index_of(self, item: HeadItem) -> int:
        return self._dict_of[self.log.messages[item.row].id]

    def _without_orphans(self, items: Iterable[HeadItem]) -> Iterator[HeadItem]:
        """Leave out results whose calls are no longer in the prompt: no provider accepts them."""
        call_ids: set[str] = set()
        for item in items:
            message = self.log.messages[item.row] if item.source is None else item.message(self.log)
            call_ids.update(c.id for c in message.tool_calls)
            is_orphan = message.role == "tool" and message.call_id not in call_ids
            if not (is_orphan and message.call_id in self._call_ids):
                yield item


def _author(raw: object) -> ChatMessage:
    """Return the agent of a reply that has a name, as a keyword: rules distinguish agents by it."""
    if not isinstance(raw, dict) or raw.get("role") != "assistant":
        return {}
    name = raw.get("name")
    return {"agent": name} if isinstance(name, str) and name else {}


def _merge_dict(old: ChatMessage, new: ChatMessage) -> ChatMessage:
    """Return an added dict with other content and tool calls; its other keys remain."""
    if old.get("type") == "function_call_output":  # an item of the Responses API
        return old | {"output": new.get("content") or ""}
    rest = {k: v for k, v in old.items() if k != "tool_calls" or "tool_calls" in new}
    return rest | {k: v for k, v in new.items() if k in ("content", "tool_calls")}


# pydantic-ai has one message per request or reply, with parts; the rules have one dict per part of
# a request and one per reply. Each dict has a `_DictSource`, so that a prompt is put together from
# the same objects again, and only what the rules changed is built again.

MessageDict = dict[str, Any]


class _DictSource(NamedTuple):
    """The message and the part of a request that a dict comes from; both None for a new dict."""

    message: int | None = None
    """Its index in the list of messages."""
    part: Any = None
    """None where the message is a reply."""


def history_processor(rules: Any, *, limit: int | None = None) -> Callable[[list[Any]], list[Any]]:
    """Build a history processor for an agent of pydantic-ai; use one per conversation.

    Args:
        rules: rules, a preset or its name, a policy or its text form.
        limit: the model's context window, in tokens, where the rules have none.

    Returns:
        A function from messages to messages; those that are unchanged are the same objects.

    Example:
        Pass it as ``Agent(model, capabilities=[ProcessHistory(process)])``, in pydantic-ai 1 as
        ``history_processors=[process]``.

        >>> import ctxkit as ck
        >>> process = ck.history_processor("pi", limit=100_000)
    """
    context = Context(rules, limit=limit)

    def process_history(messages: list[Any]) -> list[Any]:
        pairs = [pair for n, message in enumerate(messages) for pair in _to_dicts(message, n)]
        return _to_objects(context.fit([sent for sent, _ in pairs]), messages, pairs)

    return process_history


def _to_dicts(message: Any, n: int) -> list[tuple[MessageDict, _DictSource]]:
    """Return the n-th message of pydantic-ai as Chat Completions dicts with their sources."""
    if message.kind == "response":
        calls = [
            {"id": p.tool_call_id, "type": "function",
             "function": {"name": p.tool_name, "arguments": p.args_as_json_str()}}
            for p in message.parts if p.part_kind == "tool-call"
        ]  # fmt: skip
        text = "".join(p.content for p in message.parts if p.part_kind == "text")
        reply: MessageDict = {"role": "assistant", "content": text or None}
        return [(reply | ({"tool_calls": calls} if calls else {}), _DictSource(n))]
    return [(_request_part_dict(part), _DictSource(n, part)) for part in message.parts]


def _request_part_dict(part: Any) -> MessageDict:
    """Return a part of a request as a dict."""
    if part.part_kind == "system-prompt":
        return {"role": "system", "content": part.content}
    if part.part_kind == "user-prompt":
        return {"role": "user", "content": _text(part.content)}
    text = part.model_response() if part.part_kind == "retry-prompt" else part.model_response_str()
    if part.part_kind == "retry-prompt" and part.tool_name is None:
        return {"role": "user", "content": text}
    return {"role": "tool", "tool_call_id": part.tool_call_id, "content": text}


def _text(content: Any) -> str:
    """Return a user's content as text; other content becomes the name of its type."""
    if isinstance(content, str):
        return content
    return "\n".join(c if isinstance(c, str) else f"[{type(c).__name__}]" for c in content or ())


def _to_objects(
    prompt: list[MessageDict],
    messages: list[Any],
    pairs: list[tuple[MessageDict, _DictSource]],
) -> list[Any]:
    """Return a prompt as messages of pydantic-ai, adjacent parts of one request joined."""
    from pydantic_ai.messages import ModelRequest

    results = {
        p.tool_call_id: p
        for m in messages if m.kind == "request"
        for p in m.parts if p.part_kind in ("tool-return", "retry-prompt")
    }  # fmt: skip
    out: list[Any] = []
    sources: list[int | None] = []
    """For each message of `out` the index of the one that it comes from; None: it is new."""
    for sent, (n, part) in zip(prompt, _find_sources(prompt, pairs), strict=True):
        if sent["role"] == "assistant":
            out.append(_reply_object(sent, messages) if n is None else messages[n])
        elif out and n is not None and sources[-1] == n:
            out[-1] = replace(out[-1], parts=[*out[-1].parts, part])
            continue
        elif n is None:
            out.append(ModelRequest(parts=[_request_part(sent, results)]))
        else:
            out.append(replace(messages[n], parts=[part]))
        sources.append(n)
    return [
        messages[n] if n is not None and len(m.parts) == len(messages[n].parts) else m
        for m, n in zip(out, sources, strict=True)
    ]


def _find_sources(
    prompt: list[MessageDict], pairs: list[tuple[MessageDict, _DictSource]]
) -> list[_DictSource]:
    """Return the source of each dict of a prompt; of equal dicts the newest first."""
    unused: dict[str, list[_DictSource]] = {}
    for sent, source in pairs:
        unused.setdefault(json.dumps(sent), []).append(source)
    out: list[_DictSource] = []
    for sent in reversed(prompt):
        sources = unused.get(json.dumps(sent))
        out.append(sources.pop() if sources else _DictSource())
    return out[::-1]


def _request_part(sent: MessageDict, results: dict[str, Any]) -> Any:
    """Return a new or changed message as the part of a request."""
    from pydantic_ai.messages import SystemPromptPart, ToolReturnPart, UserPromptPart

    if sent["role"] == "tool":
        old = results[sent["tool_call_id"]]
        return ToolReturnPart(old.tool_name, sent["content"], tool_call_id=old.tool_call_id)
    kind = SystemPromptPart if sent["role"] == "system" else UserPromptPart
    return kind(content=sent["content"] or "")


def _reply_object(sent: MessageDict, messages: list[Any]) -> Any:
    """Return a new or changed reply; a changed one keeps all but its text and arguments."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    calls = [
        ToolCallPart(
            c["function"]["name"],
            json.loads(c["function"]["arguments"] or "{}"),
            tool_call_id=c["id"],
        )
        for c in sent.get("tool_calls") or ()
    ]
    parts = [*([TextPart(sent["content"])] if sent.get("content") else []), *calls]
    ids = {c.tool_call_id for c in calls}
    old = next(
        (m for m in messages if m.kind == "response" and ids
         and {p.tool_call_id for p in m.parts if p.part_kind == "tool-call"} == ids), None,
    )  # fmt: skip
    return replace(old, parts=parts) if old is not None else ModelResponse(parts=parts)
