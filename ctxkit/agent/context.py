"""The live end of a session: its log, and the engine's run that stands before the next call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ctxkit.agent.offloads import Offloads, Save
from ctxkit.agent.sent_prompts import Prompts
from ctxkit.engine import Kept, Run, advance, believed, log_of
from ctxkit.policies.adaptive import last_resort
from ctxkit.policies.chain import applied
from ctxkit.policies.policy import name_of
from ctxkit.policies.recorded import AsRecorded
from ctxkit.sizes.prompt_sizes import COUNTED, billed_prompt, bills, estimate

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.messages import Edit, Message
    from ctxkit.policies.policy import Policy
    from ctxkit.policies.rules import Rules
    from ctxkit.session import Session

_replace = msgspec.structs.replace


class PreparedCall(NamedTuple):
    """What the next call is sent, and what was done for it."""

    messages: tuple[Message, ...]
    tokens: int
    edits: tuple[Edit, ...]
    """Compactions made before this call, to be kept in the session."""
    warned: tuple[str, ...]
    """Names of the warnings that became due."""
    failed: tuple[str, ...]
    """Compactions that failed or were refused, in words."""


class LiveContext:
    """A session's context while it runs: messages are added, calls prepared by the same engine that
    replays.

    Args:
        session: what is there already, its edits in force.
        rules: the rules from now on.
        fixed: tokens of each prompt that no message holds (tool schemas).
        limit: the model's window where the rules name none.
        save: keeps what stubs name; None: results stay whole.
        prompts: keeps the runs that prepare the calls.
    """

    def __init__(
        self,
        session: Session,
        rules: Rules,
        *,
        fixed: int = 0,
        limit: int | None = None,
        save: Save | None = None,
        prompts: Prompts | None = None,
    ) -> None:
        self._offloads = Offloads(save)
        self.schemas = fixed
        """Tokens of each prompt that no message holds, as counted."""
        self.rules = rules
        counter = rules.counter
        self.log = log_of(session, rules, fixed=fixed, tokens=_plain_sizes(session, counter))
        self.log.fixed = fixed
        self.run = Run(self.log, rules, limit)
        self._stand()
        self._shown = self._went = self.run.shown()
        self.prompts = prompts or Prompts()
        self.prompts.begin(self.run, fixed)
        self._numbered = len(session.edits)
        self._label = rules.label

    def _stand(self) -> None:
        """Bring the run to the end of the log, all recorded edits in force."""
        none: dict[str, Any] = {"trigger": None, "pruning": None, "on_compacted": None}
        past = self.rules.but(policy=AsRecorded(), guards=(), **none)
        then = Run(self.log, past, self.run.room.limit)
        advance(then, past, self.log.calls)
        was = history = then.history.at(self.log.calls)
        for call, edit in self.log.recorded:
            if call == self.log.calls:
                history = history.apply(edit)
        if history is not was:
            then.by_hand(history, "recorded", "recorded")
        self.run.resume(then)
        edited = bool(self.log.recorded) and self.log.recorded[-1][0] == self.log.calls
        if self.log.calls and not edited and self.log.replies[-1] is not None:
            reply, call = self.log.replies[-1], self.log.calls - 1
            said = reply.details.get(COUNTED)
            whole = then.sizes(call, call + 1)[0]
            counted = self.schemas + said if isinstance(said, int) else whole
            self.log.fixed = self.schemas + believed(reply, counted)

    def add(self, message: Message) -> None:
        """Write a message that was said; a reply's bill corrects the count of prompts to come."""
        self.log.append(message)
        if message.role == "assistant" and self.run.call == self.log.calls:
            call, before = self.run.call - 1, self.log.fixed - self.schemas
            known = self.run.sizes(call, call + 1)[0]
            self.log.owe((billed_prompt(message) or self._went.tokens) - known)
            self.log.fixed = self.schemas + believed(message, self.schemas + self.counted, before)

    @property
    def counted(self) -> int:
        """Tokens of the messages that the last call was sent, as counted."""
        return self._went.tokens - self.log.fixed_at[self.run.call - 1]

    def prepare(self, time: float, agent: str | None = None) -> PreparedCall:
        """Open the next call: compact where the rules say so, prune, and return what is sent."""
        run = self.run
        cuts, warned, held = len(run.cuts), len(run.warned), len(run.held)
        self.log.open(time, agent)
        advance(run, self.rules, self.log.calls)
        if len(run.cuts) > cuts:
            self.log.fixed = self.schemas  # the last bill was of another prompt
        shown = run.shown()
        self._shown = self._went = self._offloads.settled(run, shown)
        if self._shown is not shown:
            self.prompts.changed(self._shown.messages, "not offloaded")
        return PreparedCall(
            self._shown.messages,
            self._shown.tokens,
            self._edits(run.cuts[cuts:]),
            tuple(name for _, name in run.warned[warned:]),
            tuple(h.said for h in run.held[held:]),
        )

    @property
    def stages(self) -> tuple[Any, ...]:
        """What is done, one after the other, where a prompt does not fit whatever the rules did."""
        return last_resort(self.rules.pruning)

    def trimmed(self, stage: int) -> History:
        """Return what the prepared call is sent at a stage (-1: before the first); it goes out so.

        Nothing of it is kept.
        """
        shown = self._shown
        self._went = shown if stage < 0 else applied(self.stages[stage], shown, self.run.room)
        return self._went

    def preview(self) -> tuple[tuple[Message, ...], int]:
        """Return what the next call would be sent uncompacted, and its tokens; nothing changes."""
        view = self.run.coming()
        return view.messages, view.tokens

    def tried(self, policy: Policy) -> Kept | None:
        """Return what a policy would do now, or None where it does nothing; nothing changes."""
        was = self.run.history.at(self.run.call)
        new = applied(policy, was, self.run.room)
        return None if new is was else Kept(self.run.call, was, new, "manual", name_of(policy))

    def compact(self, policy: Policy, trigger: str = "manual") -> tuple[Edit, ...]:
        """Do what a policy does now; return the edits to keep, none where it does nothing.

        Raises:
            ModelError: the summariser failed.
        """
        cut = self.tried(policy)
        if cut is None:
            return ()
        done = self.run.by_hand(cut.new, trigger, cut.by)
        self.log.fixed = self.schemas
        return self._edits([done])

    @property
    def coming(self) -> int:
        """Tokens that the next call would be sent, pruned, if nothing were compacted: as the
        triggers have it.
        """
        return self.run.coming().tokens

    def estimate_size(self, compacted: History | None = None) -> int:
        """Return what the next prompt would be billed, pruned, as estimated.

        Args:
            compacted: what a compaction would leave; None: the context as it stands.
        """
        view = self.run.coming(compacted)
        known = bills(self.log.replies, self.schemas)
        return estimate(self.schemas + view.tokens - view.fixed, known)

    @property
    def tokens(self) -> int:
        """Tokens of the next prompt, as it stands, before any pruning."""
        return self.run.history.at(self.run.call).tokens

    @property
    def messages(self) -> int:
        """Messages of the next prompt, as it stands."""
        return len(self.run.history.at(self.run.call))

    def _edits(self, cuts: list[Kept]) -> tuple[Edit, ...]:
        out: list[Edit] = []
        for cut in cuts:
            for i, edit in enumerate(cut.edits):
                name = f"{self._label}-{self._numbered}.{i}"
                inserted = tuple(_named(m, name, k) for k, m in enumerate(edit.inserted))
                out.append(_replace(edit, id=name, inserted=inserted))
            self._numbered += 1
        return tuple(out)


def _named(message: Message, edit: str, number: int) -> Message:
    """Give a message that an edit brings an id of its own, where it has none."""
    return message if message.id else _replace(message, id=f"{edit}/{number}")


def _plain_sizes(session: Session, counter: Any) -> list[int]:
    """Count every message: a live session's sizes are the counter's own, not scaled to usage."""
    from ctxkit.tokens import default

    count = (counter or default()).message
    return [count(m) for m in session.messages]
