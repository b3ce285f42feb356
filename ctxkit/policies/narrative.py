"""fuseraft's compaction: a model's words, the record, evidence or both in place of old turns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ctxkit.errors import ModelError, failure_text
from ctxkit.messages import Message, Text
from ctxkit.policies.evidence import EvidenceRecord, IntentRecord
from ctxkit.policies.summarisers import Passage, text_of, written_instead
from ctxkit.policies.summary import LOCAL, Summary
from ctxkit.texts import contents, reconstructions, records, summary_passages
from ctxkit.texts.summary_passages import FUSERAFT_SECTIONS

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.policies.setting import Natural, Positive
    from ctxkit.tokens import Room

RETRIES = 4
"""How often a summary call that was too large is made again, each message cut to 0.8 of before."""
LEAST = 200
"""Characters below which a message is not cut."""
SEPARATOR = "\n\n---\n\n"


@dataclass(frozen=True, kw_only=True, repr=False)
class Narrative(Summary):
    """Put one message in the place of old turns: what the record knows, then a model's words."""

    on_failure: ClassVar[str] = "a marker of the failure stands in the place of the old turns"
    """What comes of it where no summary comes about."""
    mode: Literal["llm", "intent", "lossless", "hybrid"] = "llm"
    """`llm` summarises, `intent` lists tool calls, `lossless` gives evidence, `hybrid` evidence and
    summary.
    """
    keep_replies: Positive = 10
    """Replies at the end that are kept, with the message that the oldest of them answers."""
    include_reasoning: bool = True
    """Put the model's thinking of the old turns before the summary, where the session holds it."""
    include_symbols: bool = True
    """Put names that were defined in written files before it."""
    include_exploration: bool = True
    """Put what was read and searched before it."""
    max_chars_per_message: Natural = 8000
    """Characters of one message that the summariser sees; 0: all."""
    signals: tuple[str, ...] = ()
    """Keywords of a handoff; the last one that would be lost is said again at the end."""
    sections: tuple[str, ...] = FUSERAFT_SECTIONS
    without_model: Any = None
    """A trigger: where it is due, `llm` and `hybrid` do as `intent` does, without a model."""
    quirks: bool = False
    """Keep `keep_replies` messages instead of replies; intent lines as the program writes them."""

    @property
    def writer(self) -> Any:
        """What the message comes from: a summariser, or in two modes the record alone."""
        records = {"intent": IntentRecord(quirks=self.quirks), "lossless": EvidenceRecord()}
        return records.get(self.mode, self.maker)

    def cut(self, history: History, _room: Room) -> int:
        """Return the first position that is kept."""
        n = len(history)
        if n < 2:
            return 0
        if self.quirks:
            first = n - min(max(self.keep_replies, 1), n - 1)
            return history.safe(first) or history.safe_before(first)
        first = history.nth_last("assistant", self.keep_replies)
        users = history.role("user")
        while first > 0 and users[first - 1]:
            first -= 1
        return history.safe_before(max(first, 0))

    def __call__(self, history: History, room: Room) -> History:
        """Return the history with its old turns in one message."""
        asks = self.mode in ("llm", "hybrid") and self.without_model is not None
        if asks and self.without_model(history, room):
            return replace(self, mode="intent", summariser=None, without_model=None)(history, room)
        new = super().__call__(history, room)
        return new if new is history or not self.signals else self._signalled(history, new)

    def written(self, history: History, first: int) -> Message | str | int:
        """Return the message's text, or its size where the summariser only knows that."""
        passage = Passage(history, first, self.front(history), self.limit, self.told())
        if self.mode == "intent":
            return str(self.writer(passage))
        turns = [int(t) for t in history.turns[list(passage.positions)]]
        proved = "" if self.mode == "llm" else EvidenceRecord()(passage)
        if self.mode == "lossless":
            return proved
        try:
            said = self._told_again(passage)
        except ModelError as error:
            instead = proved or reconstructions.failure(turns, failure_text(error))
            return written_instead(instead, error)
        if isinstance(said, int):
            return said
        head = reconstructions.covers("CONVERSATION SUMMARY", turns)
        blocks = [b for b in (proved, *self._blocks(passage, turns, history.log.agent)) if b]
        text = SEPARATOR.join([*blocks, said])
        return text if proved else f"{head}\n\n{text}"

    def _blocks(self, passage: Passage, turns: list[int], agent: str) -> list[str]:
        acts = records.actions(passage.messages, turns, agent)
        out = []
        if self.include_symbols:
            calls = (c for m in passage.messages for c in m.tool_calls)
            texts = ((contents.path(c), str(v)) for c in calls for v in c.arguments.values())
            out.append(records.symbols(acts, texts))
        if self.include_reasoning:
            out.append(records.reasoning(passage.messages, turns, agent))
        if self.include_exploration:
            out.append(records.exploration(acts))
        return out

    def _told_again(self, passage: Passage) -> str | int:
        """Return the summary; where the call was too large, ask again with shorter messages."""
        maker = self.maker
        if isinstance(maker, LOCAL):
            return self._said(maker, passage)
        cap = self.max_chars_per_message or max(
            (len(summary_passages.plain(m)) for m in passage.messages), default=0
        )
        grounded = replace(passage, instructions=f"{passage.instructions}\n\n{change_log(passage)}")
        for left in range(RETRIES, -1, -1):
            short = replace(grounded, history=capped(passage.history, passage.before, cap))
            try:
                return self._said(maker, short)
            except ModelError as error:
                if not error.overflow or not left:
                    raise
                cap = max(int(cap * 0.8), LEAST)
            except (OSError, ValueError, RuntimeError) as error:
                raise ModelError(f"{error}") from error
        raise AssertionError  # pragma: no cover  the last round returns or raises

    def _said(self, maker: Any, passage: Passage) -> str | int:
        made = self._once(maker, passage)
        return made if isinstance(made, int) else text_of(made)

    def _signalled(self, was: History, new: History) -> History:
        """Return the history with the last handoff signal said again, where it is gone."""
        for message in reversed(was.messages):
            word = next((s for s in self.signals if s in summary_passages.plain(message)), None)
            if word is None:
                continue
            if any(word in summary_passages.plain(m) for m in new.messages if m.role != "summary"):
                return new
            who = message.agent or was.log.agent
            text = f"[Resume: pre-compaction routing signal from {who}]\n{word}"
            again = Message(role="user", kind="injected", parts=(Text(text),))
            return new.insert(len(new), again, "a pinned signal")
        return new


def change_log(passage: Passage) -> str:
    """Return what the record proves was changed, to go by rather than by what agents claim."""
    acts = records.actions(passage.messages)
    files = [f"  {p}" for p in records.files_written(acts)]
    runs = [
        f"  {contents.one_line(a.target, 120)} [{'OK' if a.outcome == 'done' else 'FAILED'}]"
        for a in records.commands(acts)
    ]
    rows = ["AUTHORITATIVE CHANGE LOG — ground truth, it goes before what agents say of themselves"]
    rows += ["Files written:", *files] if files else []
    return "\n".join(rows + (["Commands run:", *runs] if runs else []))


def capped(history: History, before: int, cap: int) -> History:
    """Return the history with its first messages, but summaries, cut to so many characters."""
    if cap <= 0:
        return history
    long = np.flatnonzero(
        (history.chars > cap) & (np.arange(len(history)) < before) & ~history.role("summary")
    )
    changes: dict[int, Message | str] = {}
    for p in long.tolist():
        text = summary_passages.plain(history[p])
        if len(text) > cap:
            short = f"{text[:cap]} [TRUNCATED — {len(text):,} chars total]"
            changes[p] = contents.with_text(history[p], short)
    return history.shorten(changes, reason="for the summariser")
