"""Rules for anybody's agent loop: plain OpenAI-style message dicts in, dicts out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.engine import Run, advance, woven
from ctxkit.errors import BadArguments
from ctxkit.history import History, Log
from ctxkit.policies.chain import applied
from ctxkit.policies.outlooks import Straight
from ctxkit.policies.triggers import first_due
from ctxkit.presets.naming import as_rules
from ctxkit.readers.talks import Talk
from ctxkit.session import Session
from ctxkit.tokens.catalogue import default
from ctxkit.writers.openai import to_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.messages import Edit, Message

Dict = dict[str, Any]


def fit(messages: Sequence[Dict], rules: Any, *, limit: int | None = None) -> list[Dict]:
    """Return the messages that rules would send now; dicts that are sent as they are come back as the same objects.

    Stateless: nothing is remembered of earlier calls, so guards have nothing to go by. Put the result in the place of
    your list, or use `Context`, which remembers.

    Args:
        messages: Chat Completions messages, oldest first: everything before the call that is about to be made.
        rules: rules, a preset or its name, a policy (always asked) or its words.
        limit: the model's window where the rules name none.

    Raises:
        BadArguments: a message is none, or the rules cannot work.
        UnsoundHistory: a policy parted a tool call from its result.
    """
    rules = as_rules(rules)
    talk = _Talk(rules)
    talk.add(messages)
    call = talk.log.open()
    history = History.start(talk.log, call)
    room = rules.room(talk.log, limit)
    if rules.policy is not None and rules.auto:
        due = first_due(rules.trigger, Straight(history, room), call, call + 1) == call
        history = applied(rules.policy, history, room) if due else history
    if rules.pruning is not None:
        history = applied(rules.pruning, history, room)
    return talk.dicts(history)


class Context:
    """An agent's context under rules, remembering what it was shown and what was compacted.

    In a loop::

        context = Context(rules)
        while ...:
            reply = client.chat(messages=context.fit(messages))   # messages: your own list, which only grows
            messages.append(reply)

    or ``context.add(message)`` for each message and ``context.fit()`` before each call. `tokens`, `limit`, `edits`,
    `held` say how it stands, `session` gives all of it to frames and plots.

    Args:
        rules: rules, a preset or its name, a policy (always asked) or its words.
        limit: the model's window where the rules name none.
        name: id of the session.
    """

    def __init__(self, rules: Any, *, limit: int | None = None, name: str = "context") -> None:
        self.rules = as_rules(rules)
        self.name = name
        self._talk = _Talk(self.rules)
        self.run = Run(self._talk.log, self.rules, limit)
        self._given: list[Dict] = []
        self._last: list[Dict] = []
        self._open = False

    def add(self, *messages: Dict) -> Context:
        """Take messages that were said; return the context."""
        for message in messages:
            self._talk.add([message])
            self._given.append(message)
        self._open = self._open and not messages
        return self

    def fit(self, messages: Sequence[Dict] | None = None) -> list[Dict]:
        """Return the messages of the coming call; dicts that are sent as they are come back as the same objects.

        Args:
            messages: your list with all messages so far, or the list that the last `fit` gave, with what was said
                since; None: all that was added.

        Raises:
            BadArguments: the list is neither; begin a new context for another conversation.
        """
        if messages is not None:
            self.add(*self._new(messages))
        if not self._open:
            self._talk.log.open()
            self._open = True
            advance(self.run, self.rules, self._talk.log.calls)
        self._last = self._talk.dicts(self.run.shown())
        return list(self._last)

    def _new(self, messages: Sequence[Dict]) -> Sequence[Dict]:
        for known in (self._given, self._last):
            n = len(known)
            if len(messages) >= n and all(a is b or a == b for a, b in zip(known, messages, strict=False)):
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
        """Everything that was said, with the compactions where they were made: for frames and plots."""
        log = tuple(woven(self._talk.messages, self.run))
        return Session(id=self.name, format="live", log=log, context_window=self.limit, tools=self._talk.talk.tools)

    def __repr__(self) -> str:
        done = len(self.run.cuts)
        return (
            f"<Context {self.rules.label}: {len(self._given)} messages, {self.tokens:,} of {self.limit:,} tokens, "
            f"{self.run.call} calls, {done} compaction{'' if done == 1 else 's'}>"
        )


class _Talk:
    """Dicts as rows of a log, and back."""

    def __init__(self, rules: Any) -> None:
        self.talk = Talk("openai")
        self.log = Log(rules.counter or default(), estimator=rules.estimator)
        self.messages: list[Message] = []
        self._raws: list[Dict] = []
        self._of: dict[str, int] = {}
        self._many: dict[int, int] = {}

    def add(self, raws: Sequence[Dict]) -> None:
        """Take dicts; BadArguments for one that is no message."""
        for raw in raws:
            made = self.talk.make(raw)
            if not made:
                n = len(self._raws)
                raise BadArguments(
                    f"Message {n} is none: expected a dict with a known role and content, got {raw!r:.80}."
                )
            for message in made:
                self._of[message.id] = len(self._raws)
                self.log.append(message)
                self.messages.append(message)
            self._many[len(self._raws)] = len(made)
            self._raws.append(raw)

    def dicts(self, history: History) -> list[Dict]:
        """Return what a history shows as dicts, the given ones where nothing was changed."""
        shown = [history.item(p) for p in range(len(history))]
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


def _changed(old: Dict, new: Dict) -> Dict:
    """Return a given dict with other content and tool calls; whatever else it holds remains."""
    if old.get("type") == "function_call_output":  # an item of the Responses API
        return old | {"output": new.get("content") or ""}
    kept = {k: v for k, v in old.items() if k != "tool_calls" or "tool_calls" in new}
    return kept | {k: v for k, v in new.items() if k in ("content", "tool_calls")}
