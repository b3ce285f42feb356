"""Rules in anybody's agent loop: `ck.fit`, `ck.Context`, and a history processor for
pydantic-ai.
"""

from __future__ import annotations

import json
import warnings
from collections import OrderedDict
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from ctxkit.engine import Run, advance, weave_edits
from ctxkit.errors import BadArguments
from ctxkit.formats.chat_requests import ChatConversation
from ctxkit.formats.openai import encode_chat_message
from ctxkit.policies.base import apply_policy
from ctxkit.policies.forecast import UnprunedForecast
from ctxkit.policies.history.history import History
from ctxkit.policies.history.log import MessageLog
from ctxkit.presets.registry import resolve_rules
from ctxkit.session.session import Session
from ctxkit.tokens.registry import default_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ctxkit.policies.history.head import HeadItem
    from ctxkit.policies.rules import Rules
    from ctxkit.presets.registry import RulesLike
    from ctxkit.session.messages import Edit, Message


ChatMessage = dict[str, Any]
_MAX_LISTS = 16
"""Lists that are known at a time."""
_WARN_AFTER = 3
"""After so many compactions at calls that follow one another it is said."""


def fit(
    messages: Sequence[ChatMessage], rules: RulesLike, *, limit: int | None = None
) -> list[ChatMessage]:
    """Return the messages that rules would send now; dicts that are sent as they are come back as
    the same objects.

    For one call. Nothing is remembered of earlier ones, so guards have nothing to go by, and a list
    that grows is compacted anew at each call: its prompts begin differently each time, and no cache
    can serve them. In a loop use `Context`, which remembers, or put the result in the place of your
    list. The second compaction of one list warns.

    Args:
        messages: Chat Completions messages, oldest first: everything before the call that is about
            to be made. The `name` of a reply is the agent that said it.
        rules: rules, a preset or its name, a policy (always asked) or its words.
        limit: the model's window where the rules name none.

    Raises:
        BadArguments: a message is none, or the rules cannot work.
        UnsoundHistory: a policy parted a tool call from its result.
    """
    rules = resolve_rules(rules, once=True)
    talk = _Conversation(rules)
    talk.add(messages)
    call = talk.log.open()
    history = History.start(talk.log, call)
    room = rules.room(talk.log, limit)
    if rules.policy is not None and rules.trigger is not None and rules.auto:
        due = rules.trigger.first(UnprunedForecast(history, room), call, call + 1) == call
        new = apply_policy(rules.policy, history, room) if due else history
        if new is not history and _COMPACTED_LISTS.again(messages):
            warnings.warn(REPEATED_FIT_WARNING, stacklevel=2)
        history = new
    if rules.pruning is not None:
        history = apply_policy(rules.pruning, history, room)
    return talk.dicts(history)


class _CompactedLists:
    """Knows the lists that were compacted last, without keeping anything of them alive."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._lock = Lock()

    def again(self, messages: Sequence[ChatMessage]) -> bool:
        """Note a list that is compacted; return True where it was before, and has only
        grown since.
        """
        with self._lock:
            ids = self._known.pop(id(messages), None)
            now = tuple(map(id, messages))
            self._known[id(messages)] = now
            while len(self._known) > _MAX_LISTS:
                self._known.popitem(last=False)
        return ids is not None and len(now) > len(ids) and now[: len(ids)] == ids


_COMPACTED_LISTS = _CompactedLists()
REPEATED_FIT_WARNING = (
    "ck.fit compacted this growing list again, as it remembers nothing: each prompt begins "
    "differently, and no cache can serve it. Write `context = ck.Context(rules)` once before the "
    "loop, and `context.fit(messages)` in the place of `ck.fit(messages, rules)`."
)
"""What is said where one list is compacted a second time."""


class Context:
    """An agent's context under rules, remembering what it was shown and what was compacted.

    In a loop::

        context = Context(rules)
        while ...:
            reply = client.chat(messages=context.fit(messages))
            messages.append(reply)  # your own list, which only grows

    or ``context.add(message)`` for each message and ``context.fit()`` before each call. `tokens`,
    `limit`, `edits`, `held` say how it stands, `session` gives all of it to frames and plots.

    Args:
        rules: rules, a preset or its name, a policy (always asked) or its words.
        limit: the model's window where the rules name none.
        name: id of the session.
    """

    def __init__(
        self, rules: RulesLike, *, limit: int | None = None, name: str = "context"
    ) -> None:
        self.rules = resolve_rules(rules)
        self.name = name
        self._talk = _Conversation(self.rules)
        self.run = Run(self._talk.log, self.rules, limit)
        self._given: list[ChatMessage] = []
        self._last: list[ChatMessage] = []
        self._open = self._warned = False

    def add(self, *messages: ChatMessage) -> Context:
        """Take messages that were said; return the context."""
        for message in messages:
            self._talk.add([message])
            self._given.append(message)
        self._open = self._open and not messages
        return self

    def fit(self, messages: Sequence[ChatMessage] | None = None) -> list[ChatMessage]:
        """Return the messages of the coming call; dicts that are sent as they are come back as the
        same objects.

        Args:
            messages: your list with all messages so far, or the list that the last `fit` gave, with
                what was said since; None: all that was added.

        Raises:
            BadArguments: the list is neither; begin a new context for another conversation.
        """
        if messages is not None:
            self.add(*self._new(messages))
        if not self._open:
            self._talk.log.open()
            self._open = True
            advance(self.run, self.rules, self._talk.log.calls)
            self._warn()
        self._last = self._talk.dicts(self.run.shown())
        return list(self._last)

    def _warn(self) -> None:
        """Say once where the rules compact at each call: then no prompt is like the one before."""
        if not self._warned and [c.call for c in self.run.cuts[-_WARN_AFTER:]] == [
            *range(self.run.call - _WARN_AFTER, self.run.call)
        ]:
            self._warned = True
            warnings.warn(
                f"The rules {self.rules.label} compact at each call, so no cache can serve a"
                " prompt: give them a trigger, such as `Rules(policy=...,"
                " trigger=triggers.Share(share=0.75))` of `ctxkit.policies`.",
                stacklevel=3,
            )

    def _new(self, messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
        for known in (self._given, self._last):
            n = len(known)
            if len(messages) >= n and all(
                a is b or a == b for a, b in zip(known, messages, strict=False)
            ):
                return messages[n:]
        raise BadArguments(
            "These messages do not go on from those of the last call: pass a list that only grows, "
            "or begin a new Context."
        )

    @property
    def tokens(self) -> int:
        """Tokens of what would be sent now, if nothing were compacted."""
        return self.run.coming().tokens

    @property
    def limit(self) -> int:
        """Tokens that the model takes."""
        return self.run.room.limit

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The compactions so far, in order."""
        return self.run.edits

    @property
    def session(self) -> Session:
        """Everything that was said, with the compactions where they were made: for frames and
        plots.
        """
        log = tuple(weave_edits(self._talk.messages, self.run))
        return Session(
            id=self.name,
            format="live",
            log=log,
            context_window=self.limit,
            tools=self._talk.talk.tools,
        )

    def __repr__(self) -> str:
        done = len(self.run.cuts)
        return (
            f"<Context {self.rules.label}: {len(self._given)} messages, {self.tokens:,} of"
            f" {self.limit:,} tokens, {self.run.call} calls, {done}"
            f" compaction{'' if done == 1 else 's'}>"
        )


class _Conversation:
    """Dicts as rows of a log, and back."""

    def __init__(self, rules: Rules) -> None:
        self.talk = ChatConversation("openai")
        self.log = MessageLog(rules.counter or default_counter(), estimator=rules.estimator)
        self.log.turn.in_items = True
        self.messages: list[Message] = []
        self._raws: list[ChatMessage] = []
        self._of: dict[str, int] = {}
        self._many: dict[int, int] = {}
        self._called: set[str] = set()

    def add(self, raws: Sequence[ChatMessage]) -> None:
        """Take dicts; BadArguments for one that is no message."""
        for raw in raws:
            made = self.talk.make(raw, **_author(raw))
            if not made:
                n = len(self._raws)
                raise BadArguments(
                    f"Message {n} is none: expected a dict with a known role and content, got"
                    f" {raw!r:.80}."
                )
            for message in made:
                self._of[message.id] = len(self._raws)
                self._called.update(c.id for c in message.tool_calls)
                self.log.append(message)
                self.messages.append(message)
            self._many[len(self._raws)] = len(made)
            self._raws.append(raw)

    def dicts(self, history: History) -> list[ChatMessage]:
        """Return what a history shows as dicts, the given ones where nothing was changed."""
        shown = list(self._paired(history.item(p) for p in range(len(history))))
        whole: dict[int, int] = {}
        for item in shown:
            if item.maker is None:
                raw = self._of[self.log.messages[item.row].id]
                whole[raw] = whole.get(raw, 0) + 1
        out: list[ChatMessage] = []
        done: set[int] = set()
        for item in shown:
            raw = self._of[self.log.messages[item.row].id] if item.row >= 0 else -1
            if item.maker is None and whole[raw] == self._many[raw]:
                if raw not in done:
                    done.add(raw)
                    out.append(self._raws[raw])
                continue
            new = encode_chat_message(item.message(self.log))
            if raw >= 0 and self._many[raw] == 1:
                new = _merge_dict(self._raws[raw], new)
            out.append(new)
        return out

    def _paired(self, items: Iterable[HeadItem]) -> Iterator[HeadItem]:
        """Leave out late results of calls that are shown no more: no provider takes them alone."""
        asked: set[str] = set()
        for item in items:
            message = self.log.messages[item.row] if item.maker is None else item.message(self.log)
            asked.update(c.id for c in message.tool_calls)
            late = message.role == "tool" and message.call_id not in asked
            if not (late and message.call_id in self._called):
                yield item


def _author(raw: object) -> ChatMessage:
    """Return who said a reply, where it bears a name: rules tell agents apart by it."""
    if not isinstance(raw, dict) or raw.get("role") != "assistant":
        return {}
    name = raw.get("name")
    return {"agent": name} if isinstance(name, str) and name else {}


def _merge_dict(old: ChatMessage, new: ChatMessage) -> ChatMessage:
    """Return a given dict with other content and tool calls; whatever else it holds remains."""
    if old.get("type") == "function_call_output":  # an item of the Responses API
        return old | {"output": new.get("content") or ""}
    kept = {k: v for k, v in old.items() if k != "tool_calls" or "tool_calls" in new}
    return kept | {k: v for k, v in new.items() if k in ("content", "tool_calls")}


MessageDict = dict[str, Any]


def history_processor(rules: Any, *, limit: int | None = None) -> Callable[[list[Any]], list[Any]]:
    """Return a history processor for an agent of pydantic-ai; it is for one conversation.

    Messages that are sent as they are come back as the same objects.

    Args:
        rules: rules, a preset or its name, a policy or its words.
        limit: the model's window where the rules name none.

    Example:
        ``Agent(model, capabilities=[ProcessHistory(ck.history_processor("pi"))])``; pydantic-ai 1
        takes it as ``history_processors=[...]``.
    """
    context = Context(rules, limit=limit)

    def processed(messages: list[Any]) -> list[Any]:
        made = [(said, n, part) for n, m in enumerate(messages) for part, said in _to_dicts(m)]
        return _to_objects(context.fit([said for said, _, _ in made]), messages, made)

    return processed


def _to_dicts(message: Any) -> list[tuple[Any, MessageDict]]:
    """Return a message of pydantic-ai as Chat Completions dicts, each with the part it
    was made of.
    """
    if message.kind == "response":
        calls = [
            {"id": p.tool_call_id, "type": "function",
             "function": {"name": p.tool_name, "arguments": p.args_as_json_str()}}
            for p in message.parts if p.part_kind == "tool-call"
        ]  # fmt: skip
        text = "".join(p.content for p in message.parts if p.part_kind == "text")
        said: MessageDict = {"role": "assistant", "content": text or None}
        return [(None, said | ({"tool_calls": calls} if calls else {}))]
    return [(part, _request_part_dict(part)) for part in message.parts]


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
    """Return what a person said as text; what is no text counts by its name."""
    if isinstance(content, str):
        return content
    return "\n".join(c if isinstance(c, str) else f"[{type(c).__name__}]" for c in content or ())


def _to_objects(
    shown: list[MessageDict], messages: list[Any], made: list[tuple[MessageDict, int, Any]]
) -> list[Any]:
    """Return what is shown as messages of pydantic-ai: parts of a request that stand together are
    one again.
    """
    from pydantic_ai.messages import ModelRequest

    results = {
        p.tool_call_id: p
        for m in messages if m.kind == "request"
        for p in m.parts if p.part_kind in ("tool-return", "retry-prompt")
    }  # fmt: skip
    out: list[Any] = []
    whole: list[int | None] = []
    """For each message of `out` the one that it comes from; None: a new one."""
    for said, (n, part) in zip(shown, _origins(shown, made), strict=True):
        if said["role"] == "assistant":
            out.append(_reply_object(said, messages) if n is None else messages[n])
        elif out and n is not None and whole[-1] == n:
            out[-1] = replace(out[-1], parts=[*out[-1].parts, part])
            continue
        else:
            fresh = ModelRequest(parts=[_request_part(said, results)])
            out.append(fresh if n is None else replace(messages[n], parts=[part]))
        whole.append(n)
    return [
        messages[n] if n is not None and len(m.parts) == len(messages[n].parts) else m
        for m, n in zip(out, whole, strict=True)
    ]


def _origins(
    shown: list[MessageDict], made: list[tuple[MessageDict, int, Any]]
) -> list[tuple[int | None, Any]]:
    """Return for each dict that is shown the message and the part it comes from; of equal ones the
    newest first.
    """
    left: dict[str, list[tuple[int | None, Any]]] = {}
    for said, n, part in made:
        left.setdefault(json.dumps(said), []).append((n, part))
    out: list[tuple[int | None, Any]] = []
    for said in reversed(shown):
        places = left.get(json.dumps(said))
        out.append(places.pop() if places else (None, None))
    return out[::-1]


def _request_part(said: MessageDict, results: dict[str, Any]) -> Any:
    """Return a new or changed message as the part of a request."""
    from pydantic_ai.messages import SystemPromptPart, ToolReturnPart, UserPromptPart

    if said["role"] == "tool":
        old = results[said["tool_call_id"]]
        return ToolReturnPart(old.tool_name, said["content"], tool_call_id=old.tool_call_id)
    kind = SystemPromptPart if said["role"] == "system" else UserPromptPart
    return kind(content=said["content"] or "")


def _reply_object(said: MessageDict, messages: list[Any]) -> Any:
    """Return a new or changed reply; one that was changed keeps what it was apart from text and
    arguments.
    """
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    calls = [
        ToolCallPart(
            c["function"]["name"],
            json.loads(c["function"]["arguments"] or "{}"),
            tool_call_id=c["id"],
        )
        for c in said.get("tool_calls") or ()
    ]
    parts = [*([TextPart(said["content"])] if said.get("content") else []), *calls]
    ids = {c.tool_call_id for c in calls}
    old = next(
        (m for m in messages if m.kind == "response" and ids
         and {p.tool_call_id for p in m.parts if p.part_kind == "tool-call"} == ids), None,
    )  # fmt: skip
    return replace(old, parts=parts) if old is not None else ModelResponse(parts=parts)
