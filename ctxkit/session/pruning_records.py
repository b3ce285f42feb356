"""Records of how prunings changed single prompts, stored in the details of replies.

A pruning, or a trim to fit, changes the prompt of one call and leaves the conversation unchanged,
so it is no `Edit`. The program that runs the session records it with the reply of that call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ctxkit.session.messages import Message, Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Delta encoding of prunings.
#
# A reply records only what differs from the prompt before: most messages stay cleared once they
# are. The state at a call is the fold of all records up to it: for each message id the last record
# counts. Records of messages that a compaction removed stay in the state and have no effect.
# Cost: O(changes) to store, O(records) for all calls in order.

PRUNED_KEY = "pruned"
"""Key of the details of a reply for how prunings changed its prompt (`PromptPruning`)."""


class PrunedMessage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a message is sent from a call on."""

    id: str
    by: str | None = None
    """Name of the rule that changed it; None: it is sent whole again."""
    parts: tuple[Part, ...] | None = None
    """The parts that are sent; None: the message is left out."""


class AddedMessage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A message that a rule adds to a prompt without adding it to the conversation."""

    message: Message
    by: str = ""
    after: str | None = None
    """Id of the message after which it comes; "": it is first; None: it is last."""


class PromptPruning(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How the pruning of a prompt differs from that of the prompt before."""

    changes: tuple[PrunedMessage, ...] = ()
    added: tuple[AddedMessage, ...] | None = None
    """Messages that are added to this prompt; None: the same as to the prompt before."""
    counter: str = ""
    """Name of the counter that counts its tokens; empty: the same as that of the prompt before."""
    trimmed: bool = False
    """Whether it did not fit and was trimmed: the next prompt is tried whole again."""


class PrunedPrompt(NamedTuple):
    """The pruning of one prompt."""

    changes: Mapping[str, PrunedMessage] = {}
    """Changed and left out messages, by original id."""
    added: tuple[AddedMessage, ...] = ()
    counter: str = ""
    """Name of the counter that counts its tokens; empty: it is not known."""

    def apply(self, visible: Sequence[Message]) -> list[Message]:
        """Return the messages of a prompt, given those of the conversation at that call."""
        out: list[Message] = []
        added_after: dict[str | None, list[Message]] = {}
        for each in self.added:
            added_after.setdefault(each.after, []).append(each.message)
        out += added_after.pop("", ())
        for message in visible:
            name = get_original_id(message.id)
            change = self.changes.get(name)
            if change is None:
                out.append(message)
            elif change.parts is not None:
                out.append(msgspec.structs.replace(message, parts=change.parts))
            out += added_after.pop(name, ())
        return [*out, *(m for messages in added_after.values() for m in messages)]


def get_original_id(message_id: str) -> str:
    """Return the original id of a message whose content was changed."""
    return message_id.split("~", maxsplit=1)[0]


def encode_pruning(
    before: PrunedPrompt, after: PrunedPrompt, ids: Iterable[str], *, trimmed: bool = False
) -> dict[str, Any]:
    """Return the record of a prompt as details of its reply; empty where nothing differs.

    Args:
        before: the pruning of the prompt before.
        after: the pruning of this prompt.
        ids: original ids of the messages of the conversation at this call.
        trimmed: whether this prompt did not fit and was trimmed.
    """
    changes = tuple(
        after.changes.get(name, PrunedMessage(name))
        for name in ids
        if before.changes.get(name) != after.changes.get(name)
    )
    added = None if before.added == after.added else after.added
    counter = "" if before.counter == after.counter else after.counter
    if not changes and added is None and not counter:
        return {}
    return {PRUNED_KEY: msgspec.to_builtins(PromptPruning(changes, added, counter, trimmed))}


def has_new_pruning(reply: Message) -> bool:
    """Return whether a reply's prompt was pruned differently from the prompt before."""
    record = reply.details.get(PRUNED_KEY)
    return isinstance(record, dict) and not {"changes", "added"}.isdisjoint(record)


def advance_pruning(state: PrunedPrompt, record: PromptPruning) -> PrunedPrompt:
    """Return the pruning of the prompt with this record, given that of the prompt before."""
    changes = dict(state.changes)
    for change in record.changes:
        if change.by is None:
            changes.pop(change.id, None)
        else:
            changes[change.id] = change
    added = state.added if record.added is None else record.added
    return PrunedPrompt(changes, added, record.counter or state.counter)


class RecordedPrunings:
    """The prunings that the replies of some calls record.

    Args:
        replies: the reply of each call, in order.
    """

    def __init__(self, replies: Iterable[Message]) -> None:
        self._records: list[tuple[int, PromptPruning]] = []
        for call, reply in enumerate(replies):
            record = _decode_record(reply.details.get(PRUNED_KEY))
            if record is not None:
                self._records.append((call, record))
        self._last: tuple[int, PrunedPrompt] = 0, PrunedPrompt()
        """How many records are folded, and the state after them; threads replace it as a whole."""

    def __bool__(self) -> bool:
        """Return whether the log records prunings, even if none changed a prompt."""
        return bool(self._records)

    def at(self, call: int | None) -> PrunedPrompt:
        """Return the pruning of a call's prompt; None: of the last one that was not trimmed."""
        if call is None:
            records = self._records
            n_records = len(records)
            while n_records and records[n_records - 1][1].trimmed:
                n_records -= 1
            call = records[n_records - 1][0] if n_records else -1
        n_folded, state = self._last
        if n_folded and self._records[n_folded - 1][0] > call:
            n_folded, state = 0, PrunedPrompt()
        while n_folded < len(self._records):
            at, record = self._records[n_folded]
            if at > call:
                break
            state, n_folded = advance_pruning(state, record), n_folded + 1
        self._last = n_folded, state
        return state


def _decode_record(record: Any) -> PromptPruning | None:
    if record is None:
        return None
    try:
        return msgspec.convert(record, PromptPruning)
    except msgspec.ValidationError:
        return None
