"""The prompts that the calls of a session sent: of a live agent, or read from its log."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.engine.run_segments_and_prompts import FIXED_KIND, SentItem, build_full_prompt_change
from ctxkit.session.compactions_and_prunings import (
    MessagePruningState,
    PromptOnlyMessage,
    PromptPruningState,
    encode_pruning,
    get_original_id,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.engine.context_rules_run import RulesRun
    from ctxkit.engine.run_segments_and_prompts import PromptChange
    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session

# Three sources of what a call was sent, the first that has it:
#   changed  messages that were trimmed or restored after the run had made the prompt
#   run      the prompt as the run made it, compacted and pruned
#   record   of a call that no run of this process made: the conversation under the session's
#            edits, changed by the prunings that the replies record
#            (`session.compactions_and_prunings`)


class _PromptRun(NamedTuple):
    """A run, and the prompts changed after it made them: call -> [(messages, changed by), ...]."""

    run: RulesRun
    changed: dict[int, list[tuple[tuple[Message, ...], str]]]
    schemas: int
    """Tokens of the tools' schemas, as counted."""
    numbers: dict[str, int]
    """Number of each call that the run made, by the id of its reply."""

    def sent(self, call: int) -> tuple[SentItem, ...]:
        """Return the prompt of a call that the run made."""
        items = self.run.sent(call)
        for messages, by in self.changed.get(call, ()):
            items = tuple(_changed_items(items, messages, by, self.run))
        return items

    def sent_last(self) -> tuple[SentItem, ...]:
        """Return the prompt of the call that the run made last."""
        return self.sent(self.run.call - 1)

    def left_out(self, call: int) -> dict[int, str]:
        """Return the rows that a call's prompt left out, with the name of what left them out."""
        out = dict(self.run.left_out(call))
        if call in self.changed:
            there = {item.row for item in self.sent(call)}
            by = self.changed[call][0][1]
            rows = [item.row for item in self.run.sent(call) if item.row >= 0]
            out.update({row: by for row in rows if row not in there})
        return out

    def find_call(self, reply: Message) -> int | None:
        """Return the number of the call with a reply in the run; None: the run did not make it.

        It may differ from the session's number: a run has calls that got no reply, too.
        """
        replies, numbers = self.run.log.replies, self.numbers
        # An agent of another program adds replies whose calls the run has not prepared.
        prepared = min(self.run.call, len(replies))
        for call in range(self.run.begin + len(numbers), prepared):
            reply_then = replies[call]
            if reply_then is None and call + 1 == len(replies):
                break  # it may still come
            numbers[reply_then.id if reply_then is not None else f"no reply to {call}"] = call
        return numbers.get(reply.id)


class SentPrompts:
    """The prompts that an agent's calls were sent.

    A call is identified by the id of its reply, so branches and resumed sessions do not mix.
    """

    def __init__(self) -> None:
        self._runs: list[_PromptRun] = []

    def begin(self, run: RulesRun, schemas: int = 0) -> None:
        """Add the run that prepares the calls from now on.

        Args:
            run: the run.
            schemas: tokens of the tool schemas in each of its prompts, as counted.
        """
        self._runs = [m for m in self._runs if m.run.call > m.run.begin]  # drop runs without a call
        self._runs.append(_PromptRun(run, {}, schemas, {}))

    def changed(self, messages: tuple[Message, ...], by: str) -> None:
        """Record the messages that the last call sends, and what changed them.

        Args:
            messages: all messages of the prompt after the change.
            by: name of what changed them; a later change of this name replaces the earlier one.
        """
        latest = self._runs[-1]
        steps = latest.changed.setdefault(latest.run.call - 1, [])
        steps[:] = [step for step in steps if step[1] != by]  # a later attempt replaces its own
        steps.append((messages, by))

    def of(self, session: Session) -> SessionPrompts:
        """Return the prompts of a session's calls."""
        return SessionPrompts(self, session)

    def find(self, reply: Message) -> tuple[_PromptRun, int] | None:
        """Return the run that made a call, and its number there; None: it was made elsewhere."""
        for prompt_run in reversed(self._runs):
            number = prompt_run.find_call(reply)
            if number is not None:
                return prompt_run, number
        return None

    @property
    def latest(self) -> _PromptRun:
        """The run that prepares the calls now."""
        return self._runs[-1]


class PruningRecorder:
    """Records with each reply what prunings changed of its prompt.

    Args:
        before: the pruning of the last prompt that the session records.
    """

    def __init__(self, before: PromptPruningState) -> None:
        self._before = self._before_last = before

    def forget_last(self) -> None:
        """Forget the last call: no reply came with which its pruning could be recorded."""
        self._before = self._before_last

    def record(self, prompts: SentPrompts) -> dict[str, Any]:
        """Return the record of the last call as details of its reply; empty: nothing changed."""
        self._before_last = self._before
        prompt_run = prompts.latest
        call, log = prompt_run.run.call - 1, prompt_run.run.log
        items, left_out = prompt_run.sent(call), prompt_run.left_out(call)
        is_pruned = left_out or any(item.pruned for item in items)
        was_pruned = self._before.changes or self._before.added
        if not (is_pruned or was_pruned) and self._before.counter == log.counter.name:
            return {}
        history = prompt_run.run.history.at(call)
        ids = [get_original_id(history.item(p).message(log).id) for p in range(len(history))]
        after = _find_pruning(items, ids, left_out, log.index)._replace(counter=log.counter.name)
        is_trimmed = call in prompt_run.changed
        details = encode_pruning(self._before, after, ids, trimmed=is_trimmed)
        present = set(ids)
        removed = {k: v for k, v in self._before.changes.items() if k not in present}
        self._before = after._replace(changes={**removed, **after.changes})
        return details


def _find_pruning(
    items: Sequence[SentItem], ids: Sequence[str], left_out: dict[int, str], row_of: dict[str, int]
) -> PromptPruningState:
    """Return the pruning of a prompt, given the ids of the conversation's messages."""
    changes: dict[str, MessagePruningState] = {}
    added: list[PromptOnlyMessage] = []
    there, present, last = set[str](), set(ids), ""
    for item in items:
        name = get_original_id(item.message.id)
        if item.message.kind == FIXED_KIND:
            continue
        if item.pruned and name not in present:
            added.append(PromptOnlyMessage(item.message, item.changed_by or "", last))
            continue
        last = name
        there.add(name)
        if item.pruned:
            changes[name] = MessagePruningState(name, item.changed_by or "", item.message.parts)
    for name in ids:
        if name not in there:
            changes[name] = MessagePruningState(name, left_out.get(row_of.get(name, -1), ""))
    if ids and last == ids[-1]:  # at the end, so that it is the same at the next call
        added = [a if a.after != last else PromptOnlyMessage(a.message, a.by) for a in added]
    return PromptPruningState(changes, tuple(added))


class SessionPrompts:
    """The prompts of one session's calls, with the interface of `RulesRun` that a session reads."""

    def __init__(self, prompts: SentPrompts, session: Session) -> None:
        self._prompts, self._session = prompts, session

    @property
    def _latest_run(self) -> RulesRun:
        return self._prompts.latest.run

    @property
    def counter(self) -> str:
        """Name of the token counter."""
        return self._latest_run.counter

    @property
    def schemas(self) -> int:
        """Tokens of the tool schemas in each prompt, as counted."""
        return self._prompts.latest.schemas

    @property
    def counted_next(self) -> int:
        """Tokens of the next prompt if not compacted, as counted, schemas included."""
        items = [i for i in self.sent(None) if i.message.kind != FIXED_KIND]
        return self.schemas + sum(item.tokens for item in items)

    @property
    def row_sizes(self) -> list[int]:
        """Tokens of each message in full, in the order of the log."""
        return self._latest_run.row_sizes

    def prompt_sizes(self, calls: int) -> list[int | None]:
        """Return the prompt tokens of the first `calls` calls."""
        return [self.prompt_size(call) for call in range(calls)]

    def prompt_size(self, call: int) -> int:
        """Return the prompt tokens of a call, as the triggers saw it."""
        located = self._find(call)
        if located is not None and located[1] not in located[0].changed:
            return located[0].run.sizes(located[1], located[1] + 1)[0]
        return sum(item.tokens for item in self.sent(call))

    def sent(self, call: int | None) -> tuple[SentItem, ...]:
        """Return the prompt of a call; None: of the next one."""
        located = None if call is None else self._find(call)
        if located is not None:
            prompt_run, number = located
            return prompt_run.sent(number)
        run = self._latest_run
        if call is None and run.rules.pruning is not None:
            return run.sent(None)
        pruned = self._session.prunings.at(call)
        return tuple(_recorded_items(run.sent(call), pruned, run))

    def left_out(self, call: int | None) -> dict[int, str]:
        """Return the rows of the context that a call's prompt left out, with what left them out."""
        located = None if call is None else self._find(call)
        if located is not None:
            prompt_run, number = located
            return prompt_run.left_out(number)
        run = self._latest_run
        if call is None and run.rules.pruning is not None:
            return run.left_out(None)
        changes = self._session.prunings.at(call).changes
        return {
            item.row: change.by or ""
            for item in run.sent(call)
            if (change := changes.get(get_original_id(item.message.id))) and change.parts is None
        }

    def prompt_changes(self, start: int = 0, stop: int | None = None) -> Iterator[PromptChange]:
        """Yield the messages that entered and left the prompt at each call.

        Args:
            start: first call, from 0.
            stop: one past the last call; None: all calls of the session.
        """
        stop = len(self._session.calls) if stop is None else stop
        for is_whole, calls in groupby(range(start, stop), key=self._group_key):
            span = list(calls)
            located = self._find(span[0])
            if located is None or not is_whole[1]:
                for call in span:
                    yield build_full_prompt_change(call, self.sent(call))
            else:
                prompt_run, number = located
                for change in prompt_run.run.prompt_changes(number, number + len(span)):
                    yield change._replace(call=change.call - number + span[0])

    def _find(self, call: int) -> tuple[_PromptRun, int] | None:
        return self._prompts.find(self._session.calls[call].message)

    def _group_key(self, call: int) -> tuple[tuple[int, int], bool]:
        """Return a key that is equal for calls that one run made in a row, unchanged."""
        located = self._find(call)
        if located is None:
            return (0, 0), False
        prompt_run, number = located
        return (id(prompt_run.run), number - call), number not in prompt_run.changed


def _changed_items(
    items: Sequence[SentItem], messages: tuple[Message, ...], by: str, run: RulesRun
) -> Iterator[SentItem]:
    """Yield the items of a prompt as sent, after it was changed."""
    yield from (item for item in items if item.message.kind == FIXED_KIND)
    item_of = {get_original_id(i.message.id): i for i in items if i.message.kind != FIXED_KIND}
    for message in messages:
        item = item_of.get(get_original_id(message.id))
        if item is None:  # it was added
            yield SentItem(message, run.log.measure(message), 0, by, pruned=True)
        elif message.parts == item.message.parts:
            yield item
        elif item.row >= 0 and run.log.messages[item.row].parts == message.parts:
            yield SentItem(message, item.raw_tokens, item.raw_tokens, None, item.row)
        else:
            tokens = run.log.measure(message, item.row)
            yield SentItem(message, tokens, item.raw_tokens, by, item.row, pruned=True)


def _recorded_items(
    items: Sequence[SentItem], pruned: PromptPruningState, run: RulesRun
) -> Iterator[SentItem]:
    """Yield the items of a prompt, changed as its reply records it."""
    fixed = [item for item in items if item.message.kind == FIXED_KIND]
    messages = [item for item in items if item.message.kind != FIXED_KIND]
    item_of = {get_original_id(item.message.id): item for item in messages}
    added = {id(each.message): each.by for each in pruned.added}
    yield from fixed
    for message in pruned.apply([item.message for item in messages]):
        if id(message) in added:
            tokens = run.log.measure(message)
            yield SentItem(message, tokens, 0, added[id(message)], pruned=True)
            continue
        name = get_original_id(message.id)
        item, change = item_of[name], pruned.changes.get(name)
        if change is None:
            yield item
        else:
            tokens = run.log.measure(message, item.row)
            yield SentItem(message, tokens, item.raw_tokens, change.by, item.row, pruned=True)
