"""Rules for anybody's agent loop: plain OpenAI-style message dicts in, dicts out."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

from ctxkit.engine import Run, advance, woven
from ctxkit.errors import BadArguments
from ctxkit.history import History, Log
from ctxkit.policies.chain import applied
from ctxkit.policies.forecasts import Straight
from ctxkit.presets.naming import as_rules
from ctxkit.readers.talks import Talk
from ctxkit.session import Session
from ctxkit.tokens.counter_names import default
from ctxkit.writers.as_openai import to_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.history.head_items import Item
    from ctxkit.messages import Edit, Message
    from ctxkit.policies.rules import Rules
    from ctxkit.presets.naming import AnyRules

Dict = dict[str, Any]
_LISTS_MOST = 16
"""Lists that are known at a time."""
_EACH = 3
"""After so many compactions at calls that follow one another it is said."""


def fit(messages: Sequence[Dict], rules: AnyRules, *, limit: int | None = None) -> list[Dict]:
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
    rules = as_rules(rules, once=True)
    talk = _Talk(rules)
    talk.add(messages)
    call = talk.log.open()
    history = History.start(talk.log, call)
    room = rules.room(talk.log, limit)
    if rules.policy is not None and rules.trigger is not None and rules.auto:
        due = rules.trigger.first(Straight(history, room), call, call + 1) == call
        new = applied(rules.policy, history, room) if due else history
        if new is not history and _LISTS.again(messages):
            warnings.warn(AGAIN, stacklevel=2)
        history = new
    if rules.pruning is not None:
        history = applied(rules.pruning, history, room)
    return talk.dicts(history)


class _Lists:
    """Knows the lists that were compacted last, without keeping anything of them alive."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._lock = Lock()

    def again(self, messages: Sequence[Dict]) -> bool:
        """Note a list that is compacted; return True where it was before, and has only
        grown since.
        """
        with self._lock:
            ids = self._known.pop(id(messages), None)
            now = tuple(map(id, messages))
            self._known[id(messages)] = now
            while len(self._known) > _LISTS_MOST:
                self._known.popitem(last=False)
        return ids is not None and len(now) > len(ids) and now[: len(ids)] == ids


_LISTS = _Lists()
AGAIN = (
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

    def __init__(self, rules: AnyRules, *, limit: int | None = None, name: str = "context") -> None:
        self.rules = as_rules(rules)
        self.name = name
        self._talk = _Talk(self.rules)
        self.run = Run(self._talk.log, self.rules, limit)
        self._given: list[Dict] = []
        self._last: list[Dict] = []
        self._open = self._warned = False

    def add(self, *messages: Dict) -> Context:
        """Take messages that were said; return the context."""
        for message in messages:
            self._talk.add([message])
            self._given.append(message)
        self._open = self._open and not messages
        return self

    def fit(self, messages: Sequence[Dict] | None = None) -> list[Dict]:
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
        if not self._warned and [c.call for c in self.run.cuts[-_EACH:]] == [
            *range(self.run.call - _EACH, self.run.call)
        ]:
            self._warned = True
            warnings.warn(
                f"The rules {self.rules.label} compact at each call, so no cache can serve a"
                " prompt: give them a trigger, such as `Rules(policy=...,"
                " trigger=triggers.Share(share=0.75))` of `ctxkit.policies`.",
                stacklevel=3,
            )

    def _new(self, messages: Sequence[Dict]) -> Sequence[Dict]:
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
        log = tuple(woven(self._talk.messages, self.run))
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


class _Talk:
    """Dicts as rows of a log, and back."""

    def __init__(self, rules: Rules) -> None:
        self.talk = Talk("openai")
        self.log = Log(rules.counter or default(), estimator=rules.estimator)
        self.log.turn.in_items = True
        self.messages: list[Message] = []
        self._raws: list[Dict] = []
        self._of: dict[str, int] = {}
        self._many: dict[int, int] = {}
        self._called: set[str] = set()

    def add(self, raws: Sequence[Dict]) -> None:
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

    def dicts(self, history: History) -> list[Dict]:
        """Return what a history shows as dicts, the given ones where nothing was changed."""
        shown = list(self._paired(history.item(p) for p in range(len(history))))
        whole: dict[int, int] = {}
        for item in shown:
            if item.maker is None:
                raw = self._of[self.log.messages[item.row].id]
                whole[raw] = whole.get(raw, 0) + 1
        out: list[Dict] = []
        done: set[int] = set()
        for item in shown:
            raw = self._of[self.log.messages[item.row].id] if item.row >= 0 else -1
            if item.maker is None and whole[raw] == self._many[raw]:
                if raw not in done:
                    done.add(raw)
                    out.append(self._raws[raw])
                continue
            new = to_message(item.message(self.log))
            if raw >= 0 and self._many[raw] == 1:
                new = _changed(self._raws[raw], new)
            out.append(new)
        return out

    def _paired(self, items: Iterable[Item]) -> Iterator[Item]:
        """Leave out late results of calls that are shown no more: no provider takes them alone."""
        asked: set[str] = set()
        for item in items:
            message = self.log.messages[item.row] if item.maker is None else item.message(self.log)
            asked.update(c.id for c in message.tool_calls)
            late = message.role == "tool" and message.call_id not in asked
            if not (late and message.call_id in self._called):
                yield item


def _author(raw: object) -> Dict:
    """Return who said a reply, where it bears a name: rules tell agents apart by it."""
    if not isinstance(raw, dict) or raw.get("role") != "assistant":
        return {}
    name = raw.get("name")
    return {"agent": name} if isinstance(name, str) and name else {}


def _changed(old: Dict, new: Dict) -> Dict:
    """Return a given dict with other content and tool calls; whatever else it holds remains."""
    if old.get("type") == "function_call_output":  # an item of the Responses API
        return old | {"output": new.get("content") or ""}
    kept = {k: v for k, v in old.items() if k != "tool_calls" or "tool_calls" in new}
    return kept | {k: v for k, v in new.items() if k in ("content", "tool_calls")}
