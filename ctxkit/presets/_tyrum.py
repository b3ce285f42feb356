"""Tyrum at 999cf580: a checkpoint of what is owed in the place of old messages; tool calls pruned
before each call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ctxkit.errors import BadArguments, ModelError
from ctxkit.messages import Message, Text
from ctxkit.policies.chain import Chain
from ctxkit.policies.flushes import MemoryFlush
from ctxkit.policies.prune import Cap, Prune
from ctxkit.policies.rules import Rules
from ctxkit.policies.summarisers import written_instead
from ctxkit.policies.summary import Summary
from ctxkit.policies.triggers import Above, Both, Overflow, Share
from ctxkit.presets.checks import between, typed
from ctxkit.presets.differences import Difference
from ctxkit.presets.moments import opens_turn
from ctxkit.texts import identifiers, obligations, summary_passages
from ctxkit.tokens.counters import arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.policies.summarisers import Passage
    from ctxkit.texts.obligations import Obligations
    from ctxkit.tokens import Room

INSTRUCTIONS = (
    "Write an internal checkpoint for another run of the same agent; do not answer the user. Prefer"
    " facts, exact identifiers, decisions, constraints, pending work and open questions; invent"
    " nothing; where statements conflict, take the newer one with evidence. Answer in JSON only,"
    " with the fields " + ", ".join(summary_passages.TYRUM_FIELDS) + "."
)

DIFFERENCES = (
    Difference(
        "what pruning touches",
        "only tool results, never user or assistant turns",
        "calls are cut out of assistant messages, and messages left empty disappear",
        "as the program: a result without its call would be refused by providers",
    ),
    Difference(
        "when",
        "not said",
        "before a turn, and after an overflow; not between the calls of a turn",
        "before each call, and after an overflow",
        "as the program",
    ),
    Difference(
        "audit for lost identifiers",
        "a checkpoint that lost identifiers is asked for again",
        "cannot fail: the identifiers are merged in before the checkpoint is searched",
        "the model's own output is audited",
        "as the program",
    ),
    Difference(
        "identifiers of paths",
        "paths are kept",
        "only the part of a path after its first name is found",
        "whole paths are found",
        "as the program",
    ),
    Difference(
        "long lists",
        "nothing is dropped silently",
        "lists are cut to 8 items, names to 20, silently",
        "cut too, and the text says how many went",
    ),
    Difference(
        "a stale pending item",
        "approvals stay intact",
        "one at the first message blocks every compaction",
        "as the program",
    ),
)


@dataclass(frozen=True, kw_only=True)
class CheckpointMaker:
    """Writes Tyrum's checkpoint: by a model in at most two attempts, else without one."""

    model: Any = None
    """``(passage) -> text`` that answers in JSON; None: the deterministic checkpoint at once."""
    attempts: int = 2
    """How often the model is asked."""
    quirks: bool = False
    """Find only inner parts of paths, and audit nothing."""
    name = "tyrum"

    @property
    def needs_model(self) -> bool:
        """True where a function was given that may ask a model."""
        return self.model is not None

    def __post_init__(self) -> None:
        if self.model is not None and not callable(self.model):
            raise BadArguments(
                f"The summariser of tyrum is called with a passage and answers in JSON;"
                f" {self.model!r:.80} cannot be."
            )

    def __call__(self, passage: Passage) -> Message:
        """Return the checkpoint as a message of role `summary`, its fields in `details`."""
        point, why, previous = None, "", _previous(passage)
        if self.model is not None:
            point, why = self._asked(passage, previous)
        if point is None:
            point = obligations.deterministic(passage.messages, previous, quirks=self.quirks)
        point = obligations.with_approvals(point, passage.messages, previous)
        pending = [m for m in passage.history.messages if m.pending]
        fields = {k: v for k, v in vars(point).items() if v}
        made = Message(
            role="summary",
            id=f"checkpoint-{passage.messages[-1].id}" if passage.messages else "",
            parts=(Text(obligations.rendered(point, pending)),),
            details={"checkpoint": fields},
        )
        return written_instead(made, why) if why else made

    def _asked(
        self, passage: Passage, previous: Obligations | None
    ) -> tuple[Obligations | None, str]:
        """Return the model's checkpoint; None where it fails twice, and why the last one did."""
        said = "\n".join(summary_passages.plain(m) for m in passage.messages)
        texts = [t for m in passage.messages for t in (m.text, *map(arguments, m.tool_calls))]
        known = "\n".join([said, *texts, _written(previous), passage.instructions])
        names = identifiers.found(said, inner_paths=self.quirks)
        told = (
            f"{INSTRUCTIONS}\n\nKeep:"
            f" {', '.join(names)}\n\n{passage.instructions}\n\n"
            f"{summary_passages.tyrum(passage.messages)}"
        )
        lack: tuple[str, ...] = ()
        why = ""
        for _ in range(self.attempts):
            again = told if not lack else f"{told}\n\nThe last attempt lacked: {', '.join(lack)}."
            try:
                point = obligations.checkpoint(
                    json.loads(str(self.model(replace(passage, instructions=again))))
                )
            except (ModelError, BadArguments, ValueError, AttributeError) as error:
                lack, why = (f"valid JSON ({error})",), str(error)
                continue
            lack = ("anything at all",) if point.empty else ()
            if not lack and not self.quirks:
                lack = identifiers.lost(names, _written(point))
                made_up = identifiers.invented(_written(point), known)
                lack += (f"any ground for {', '.join(made_up)}",) if made_up else ()
            if not lack:
                return point, ""
            why = f"the checkpoint lacked {', '.join(lack)}"
        return None, why


def _written(point: Obligations | None) -> str:
    """Return all the words of a checkpoint."""
    values = () if point is None else vars(point).values()
    return "\n".join(v if isinstance(v, str) else "\n".join(v) for v in values)


def _previous(passage: Passage) -> Obligations | None:
    summary = passage.previous
    data = None if summary is None else summary.details.get("checkpoint")
    return obligations.checkpoint(data) if isinstance(data, dict) else None


@dataclass(frozen=True, kw_only=True, repr=False)
class TyrumSummary(Summary):
    """Keep the last messages (a reply with all its steps is one), from before the first pending one
    on.
    """

    on_failure: ClassVar[str] = "a checkpoint made without a model, after two attempts"
    apart: bool = False

    def cut(self, history: History, _room: Room) -> int:
        """Return the first position that is kept."""
        first = last_units(history, self.keep_messages or 0)
        for p in np.flatnonzero(history.stays[:first]).tolist():
            if history[p].pending:
                first = p
                break
        return history.safe_before(first)


def last_units(history: History, keep: int) -> int:
    """Return where the last `keep` messages begin; a reply with its tools and steps is one."""
    if not keep:
        return len(history)
    begun = np.flatnonzero(_begun(history))
    return int(begun[-keep]) if keep < len(begun) else 0


def _begun(history: History) -> NDArray[Any]:
    """Return a mask: True where a message of Tyrum begins."""
    said = history.role("assistant", "tool")
    return np.asarray(~(said & np.concatenate(([False], said[:-1]))))


@dataclass(frozen=True)
class Spoken:
    """Due where so many user messages and replies are shown; a reply with all its steps is one."""

    n: int

    def __call__(self, history: History, _room: Room) -> bool:
        """Return True from that many on."""
        replies = _begun(history) & history.role("assistant")
        return history.count("user") + int(replies.sum()) >= self.n


def pruning(max_messages: int = 0, keep: int = 4) -> Any:
    """Return Tyrum's pruning: `pruneMessages` before the last messages, then a cap on how many."""
    cap = 0 if max_messages <= 0 else max(8, max_messages)
    keep = max(2, keep)
    if cap:
        keep = min(keep, max(2, cap - 1))
    prune = Prune(tool_calls=f"before-last-{keep}-messages")
    return Chain.of(prune, Cap(max_messages=cap))


@typed
def tyrum(
    *,
    context_window: int | None = None,
    limit_input: int | None = None,
    limit_output: int | None = None,
    auto: bool = True,
    reserved_input_tokens: int = 20_000,
    keep_last_messages_after_compaction: int = 2,
    max_turns: int = 0,
    max_messages: int = 0,
    tool_prune_keep_last_messages: int = 4,
    memory_flush: bool = True,
    summariser: Callable[[Passage], Any] | None = None,
    quirks: bool = False,
) -> Rules:
    """Return Tyrum's rules; the size is its estimate of characters, not the provider's count.

    Args:
        context_window: tokens that the model takes; None: as the price table has it, else 200,000.
        limit_input: tokens of prompt that the model takes, where the provider names them apart.
        limit_output: tokens of reply that it gives; None: `reserved_input_tokens` are held back
            instead.
        auto: whether anything is compacted without being asked.
        reserved_input_tokens: tokens below the limit at which a compaction is due.
        keep_last_messages_after_compaction: messages kept, where a reply with all its steps is one.
        max_turns: user messages and replies, counted in pairs, at which one is due besides; 0: off.
        max_messages: messages that a call is sent at most (8 or more); 0: all.
        tool_prune_keep_last_messages: messages at the end whose tool calls stay (2 or more).
        memory_flush: whether a live session saves to memory what a compaction takes: one write, in
            2.5 s at most.
        summariser: ``(passage) -> JSON`` of a checkpoint; None: the deterministic checkpoint,
            without a model.
        quirks: find only inner parts of paths, audit nothing and look only before a turn, as the
            program.
    """
    keep = keep_last_messages_after_compaction
    between(0, 400_000, reserved_input_tokens=reserved_input_tokens)
    between(0, 200, keep_last_messages_after_compaction=keep)
    if limit_input and limit_input > reserved_input_tokens:
        trigger: Any = Above(limit_input - reserved_input_tokens, or_equal=True, estimated=True)
    else:
        trigger = Share(1.0, of="budget", or_equal=True, estimated=True)
    if max_turns:
        trigger = trigger | Spoken(2 * max_turns)
    if quirks:
        trigger = Both((trigger, opens_turn))
    policy = TyrumSummary(
        keep_messages=max(keep, 1),
        summariser=CheckpointMaker(model=summariser, quirks=quirks),
        must_shrink=not quirks,
    )
    flush = MemoryFlush(writes=1, message_chars=2000, seconds=2.5, turn_share=0.1)
    return Rules(
        policy=policy,
        trigger=trigger | Overflow(recorded=True),
        pruning=pruning(max_messages, tool_prune_keep_last_messages),
        window=context_window,
        reserve=limit_output or reserved_input_tokens,
        estimator="tyrum",
        auto=auto,
        flush=flush if memory_flush else None,
    )
