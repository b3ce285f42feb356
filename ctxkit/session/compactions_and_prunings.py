"""Compactions and prunings of a session: groups of edits, fates of messages, pruned prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from ctxkit.session.messages import SEALED_SUMMARY, Edit, Message, Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class HasEdits(Protocol):
    """The attributes of a `Session` that this module needs; `Session` itself imports it."""

    @property
    def path(self) -> Sequence[Message | Edit]:
        """Its messages and edits."""

    @property
    def edits(self) -> Sequence[Edit]:
        """The edits of the path."""

    @property
    def details(self) -> Mapping[str, Any]:
        """Further values from its reader."""

    @property
    def origin(self) -> Any:
        """The session of which it is a replay; None for a recorded session."""


class CompactionEdits(NamedTuple):
    """The edits of one compaction, and their position in the log.

    Its effect on prompts is `metrics.compaction_savings_and_payback.CombinedCompactionBeforeCall`.
    """

    number: int
    position: int
    """Position of its first edit in `session.path`."""
    edits: tuple[Edit, ...]


def group_edits(session: HasEdits) -> tuple[CompactionEdits, ...]:
    """Return the compactions of a session's path, in order.

    The edits of a replay's n-th compaction have the ids ``rules-n.0``, ``rules-n.1``, ...: they are
    one group. Any other edit is a group of its own.

    Args:
        session: a recorded session or a replay.

    Returns:
        One value a compaction: its number, the position of its first edit in `session.path`, and
        its edits.

    Example:
        >>> import ctxkit as ck
        >>> [c.position for c in group_edits(ck.read(ck.samples.path("billing")))]
        [354, 605]
    """
    if not session.edits:
        return ()
    groups: list[CompactionEdits] = []
    previous_stem, previous_position = None, -1
    for position, entry in [(i, e) for i, e in enumerate(session.path) if type(e) is Edit]:
        stem = _get_group_stem(entry)
        if stem is not None and stem == previous_stem and position == previous_position + 1:
            groups[-1] = groups[-1]._replace(edits=(*groups[-1].edits, entry))
        else:
            groups.append(CompactionEdits(len(groups), position, (entry,)))
        previous_stem, previous_position = stem, position
    return tuple(groups)


def hides_compactions(session: HasEdits) -> bool:
    """Return True if the log's format does not record compactions and the log has none."""
    is_replay = session.origin is not None
    hidden = session.details.get("cannot_tell", ())
    return not is_replay and not session.edits and "compactions" in hidden


def count_compactions(session: HasEdits, before: int | None = None) -> int | None:
    """Return the number of a session's compactions; None if its format does not
    record them.

    Args:
        session: the session.
        before: count those that begin before this position of its path; None: all.
    """
    if hides_compactions(session):
        return None
    groups = group_edits(session)
    return len(groups) if before is None else sum(g.position < before for g in groups)


def count_affected_messages(session: HasEdits) -> list[int]:
    """Return for each compaction the number of messages that it removed, shortened or replaced.

    An edit may name messages that it inserts again as they were, such as the user's own messages
    that stay: they are not affected.
    """
    contents = {e.id: e.parts for e in session.path if isinstance(e, Message)}
    counts: list[int] = []
    for group in group_edits(session):
        inserted = {m.id: m.parts for e in group.edits for m in e.inserted}
        targets = {t for e in group.edits for t in e.targets}
        counts.append(sum(t not in inserted or inserted[t] != contents.get(t) for t in targets))
        contents |= inserted
    return counts


def _get_group_stem(edit: Edit) -> str | None:
    stem, dot, last = edit.id.rpartition(".")
    return stem if dot and stem and last.isdecimal() and edit.source == "derived" else None


# Delta encoding of prunings.
#
# A reply records only what differs from the prompt before: most messages stay cleared once they
# are. The state at a call is the fold of all records up to it: for each message id the last record
# counts. Records of messages that a compaction removed stay in the state and have no effect.
# Cost: O(changes) to store, O(records) for all calls in order.

PRUNED_KEY = "pruned"
"""Key of the details of a reply for how prunings changed its prompt (`PromptPruningChange`)."""


# A pruning, or a trim to fit, changes the prompt of one call and leaves the conversation unchanged,
# so it is no `Edit`. The program that runs the session records it with the reply of that call.
class MessagePruningState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How a message is sent from a call on."""

    id: str
    by: str | None = None
    """Name of the rule that changed it; None: it is sent whole again."""
    parts: tuple[Part, ...] | None = None
    """The parts that are sent; None: the message is left out."""


class PromptOnlyMessage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A message that a rule adds to a prompt without adding it to the conversation."""

    message: Message
    by: str = ""
    after: str | None = None
    """Id of the message after which it comes; "": it is first; None: it is last."""


class PromptPruningChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How the pruning of a prompt differs from that of the prompt before."""

    changes: tuple[MessagePruningState, ...] = ()
    added: tuple[PromptOnlyMessage, ...] | None = None
    """Messages that are added to this prompt; None: the same as to the prompt before."""
    counter: str = ""
    """Name of the counter that counts its tokens; empty: the same as that of the prompt before."""
    trimmed: bool = False
    """Whether it did not fit and was trimmed: the next prompt is tried whole again."""


class PromptPruningState(NamedTuple):
    """The pruning of one prompt."""

    changes: Mapping[str, MessagePruningState] = {}
    """Changed and left out messages, by original id."""
    added: tuple[PromptOnlyMessage, ...] = ()
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
    before: PromptPruningState,
    after: PromptPruningState,
    ids: Iterable[str],
    *,
    trimmed: bool = False,
) -> dict[str, Any]:
    """Return the record of a prompt as details of its reply; empty where nothing differs.

    Args:
        before: the pruning of the prompt before.
        after: the pruning of this prompt.
        ids: original ids of the messages of the conversation at this call.
        trimmed: whether this prompt did not fit and was trimmed.
    """
    changes = tuple(
        after.changes.get(name, MessagePruningState(name))
        for name in ids
        if before.changes.get(name) != after.changes.get(name)
    )
    added = None if before.added == after.added else after.added
    counter = "" if before.counter == after.counter else after.counter
    if not changes and added is None and not counter:
        return {}
    return {PRUNED_KEY: msgspec.to_builtins(PromptPruningChange(changes, added, counter, trimmed))}


def has_new_pruning(reply: Message) -> bool:
    """Return whether a reply's prompt was pruned differently from the prompt before."""
    record = reply.details.get(PRUNED_KEY)
    return isinstance(record, dict) and not {"changes", "added"}.isdisjoint(record)


def advance_pruning(state: PromptPruningState, record: PromptPruningChange) -> PromptPruningState:
    """Apply one record of changes to the pruning of a prompt.

    Args:
        state: the pruning of the prompt before.
        record: the changes; one whose `by` is None ends the change of that message.

    Returns:
        The pruning of the prompt with this record.
    """
    changes = dict(state.changes)
    for change in record.changes:
        if change.by is None:
            changes.pop(change.id, None)
        else:
            changes[change.id] = change
    added = state.added if record.added is None else record.added
    return PromptPruningState(changes, added, record.counter or state.counter)


class RecordedPrunings:
    """The prunings that the replies of some calls record.

    Args:
        replies: the reply of each call, in order.
    """

    def __init__(self, replies: Iterable[Message]) -> None:
        self._records: list[tuple[int, PromptPruningChange]] = []
        for call, reply in enumerate(replies):
            record = _decode_record(reply.details.get(PRUNED_KEY))
            if record is not None:
                self._records.append((call, record))
        self._last: tuple[int, PromptPruningState] = 0, PromptPruningState()
        """How many records are folded, and the state after them; threads replace it as a whole."""

    def __bool__(self) -> bool:
        """Return whether the log records prunings, even if none changed a prompt."""
        return bool(self._records)

    def at(self, call: int | None) -> PromptPruningState:
        """Return the pruning of a call's prompt; None: of the last one that was not trimmed."""
        if call is None:
            records = self._records
            n_records = len(records)
            while n_records and records[n_records - 1][1].trimmed:
                n_records -= 1
            call = records[n_records - 1][0] if n_records else -1
        n_folded, state = self._last
        if n_folded and self._records[n_folded - 1][0] > call:
            n_folded, state = 0, PromptPruningState()
        while n_folded < len(self._records):
            at, record = self._records[n_folded]
            if at > call:
                break
            state, n_folded = advance_pruning(state, record), n_folded + 1
        self._last = n_folded, state
        return state


def _decode_record(record: Any) -> PromptPruningChange | None:
    if record is None:
        return None
    try:
        return msgspec.convert(record, PromptPruningChange)
    except msgspec.ValidationError:
        return None


def has_sealed_summary(group: CompactionEdits) -> bool:
    """Return True if the log lacks the text of the summary that a model wrote."""
    return any(e.details.get(SEALED_SUMMARY) is True for e in group.edits)


MessageFateKind = Literal[
    "shown", "hidden", "dropped", "shortened", "replaced", "summarised", "pruned"
]


class MessageFate(NamedTuple):
    """The state of a message after the edits, and the compaction that caused it."""

    state: MessageFateKind
    replacement: Message | None
    """The message that a model sees in its place; None: it was removed."""
    compaction: int | None = None
    edit: Edit | None = None
    pruned_by: str | None = None
    """The pruning that changes it for one call."""

    @property
    def reason(self) -> str | None:
        """The reason why it is not shown as written; None if it is."""
        if self.pruned_by is not None:
            return f"pruned for the call by {self.pruned_by}"
        if self.edit is None:
            return "never sent to a model" if self.state == "hidden" else None
        return self.edit.reason or self.edit.method or self.edit.trigger or self.state


def get_message_fates(session: HasEdits, edits_n: int | None = None) -> dict[str, MessageFate]:
    """Return the fate of each message that an edit changed, by its id.

    Any other message is shown as written or never sent.

    Args:
        session: the session.
        edits_n: number of edits to apply, from the first; None: all.

    Returns:
        By message id the last state, the compaction that caused it, and what replaced the message.
    """
    if not session.edits:
        return {}
    fates: dict[str, MessageFate] = {}
    origin: dict[str, str] = {}  # by id of a replacement: the id of the message as written
    compaction_of_edit = {id(e): g.number for g in group_edits(session) for e in g.edits}
    for edit in session.edits[:edits_n]:
        compaction = compaction_of_edit[id(edit)]
        replacements = edit.inserted if edit.kind in ("shortened", "replaced") else ()
        for i, target in enumerate(edit.targets):
            first = origin.get(target, target)
            before = fates.get(first)
            if before is not None and before.replacement is None:
                continue  # removed already: a later edit cannot change it
            new = replacements[i] if i < len(replacements) else None
            if new is None and edit.kind in ("shortened", "replaced"):
                continue
            if new is not None:
                origin[new.id] = first
            fates[first] = MessageFate(edit.kind, new, compaction, edit)
    return fates
