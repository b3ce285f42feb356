"""Prepare each prompt of a live session with the replay engine, and remember what was sent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ctxkit.engine import Compaction, Run, advance, billing_offset, log_from_session
from ctxkit.engine.sent import FIXED_KIND, SentItem, full_prompt_change
from ctxkit.errors import StoreError
from ctxkit.policies.base import CompositePolicy, apply_policy
from ctxkit.policies.offload import Offload, artifact_in_stub
from ctxkit.policies.protocols import name_of
from ctxkit.policies.rules import RecordedCompactions
from ctxkit.policies.schedules.rows import HistoryRows
from ctxkit.policies.texts.content import call_hint
from ctxkit.policies.window import last_resort_stages
from ctxkit.tokens.live_prompt_sizes import COUNTED, billed_prompt, bills, estimate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.engine.sent import PromptChange
    from ctxkit.policies.base import BasePolicy
    from ctxkit.policies.history.history import History
    from ctxkit.policies.protocols import Policy
    from ctxkit.policies.rules import Rules
    from ctxkit.session.messages import Edit, Message, ToolCall
    from ctxkit.session.session import Session


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
        save: SaveArtifact | None = None,
        prompts: SentPrompts | None = None,
    ) -> None:
        self._offloader = ArtifactOffloader(save)
        self.schemas = fixed
        """Tokens of each prompt that no message holds, as counted."""
        self.rules = rules
        counter = rules.counter
        self.log = log_from_session(
            session, rules, fixed=fixed, tokens=_count_messages(session, counter)
        )
        self.log.fixed = fixed
        self.run = Run(self.log, rules, limit)
        self._replay_record()
        self._prepared_view = self._sent_view = self.run.shown()
        self.prompts = prompts or SentPrompts()
        self.prompts.begin(self.run, fixed)
        self._next_compaction = len(session.edits)
        self._label = rules.label

    def _replay_record(self) -> None:
        """Bring the run to the end of the log, all recorded edits in force."""
        no_actions: dict[str, Any] = {"trigger": None, "pruning": None, "on_compacted": None}
        record_rules = self.rules.but(policy=RecordedCompactions(), guards=(), **no_actions)
        record_run = Run(self.log, record_rules, self.run.room.limit)
        advance(record_run, record_rules, self.log.calls)
        was = history = record_run.history.at(self.log.calls)
        for call, edit in self.log.recorded:
            if call == self.log.calls:
                history = history.apply(edit)
        if history is not was:
            record_run.by_hand(history, "recorded", "recorded")
        self.run.resume(record_run)
        edited = bool(self.log.recorded) and self.log.recorded[-1][0] == self.log.calls
        if self.log.calls and not edited and self.log.replies[-1] is not None:
            reply, call = self.log.replies[-1], self.log.calls - 1
            counted_now = reply.details.get(COUNTED)
            run_size = record_run.sizes(call, call + 1)[0]
            counted = self.schemas + counted_now if isinstance(counted_now, int) else run_size
            self.log.fixed = self.schemas + billing_offset(reply, counted)

    def add(self, message: Message) -> None:
        """Write a message that was said; a reply's bill corrects the count of prompts to come."""
        self.log.append(message)
        if message.role == "assistant" and self.run.call == self.log.calls:
            call, offset_before = self.run.call - 1, self.log.fixed - self.schemas
            estimated = self.run.sizes(call, call + 1)[0]
            self.log.owe((billed_prompt(message) or self._sent_view.tokens) - estimated)
            self.log.fixed = self.schemas + billing_offset(
                message, self.schemas + self.counted, offset_before
            )

    @property
    def counted(self) -> int:
        """Tokens of the messages that the last call was sent, as counted."""
        return self._sent_view.tokens - self.log.fixed_at[self.run.call - 1]

    def prepare(self, time: float, agent: str | None = None) -> PreparedCall:
        """Open the next call: compact where the rules say so, prune, and return what is sent."""
        run = self.run
        compactions, warnings, failed_so_far = len(run.cuts), len(run.warned), len(run.held)
        self.log.open(time, agent)
        advance(run, self.rules, self.log.calls)
        if len(run.cuts) > compactions:
            self.log.fixed = self.schemas  # the last bill was of another prompt
        view = run.shown()
        self._prepared_view = self._sent_view = self._offloader.settled(run, view)
        if self._prepared_view is not view:
            self.prompts.changed(self._prepared_view.messages, "not offloaded")
        return PreparedCall(
            self._prepared_view.messages,
            self._prepared_view.tokens,
            self._number_edits(run.cuts[compactions:]),
            tuple(name for _, name in run.warned[warnings:]),
            tuple(h.said for h in run.held[failed_so_far:]),
        )

    @property
    def stages(self) -> tuple[Any, ...]:
        """What is done, one after the other, where a prompt does not fit whatever the rules did."""
        return last_resort_stages(self.rules.pruning)

    def trimmed(self, stage: int) -> History:
        """Return what the prepared call is sent at a stage (-1: before the first); it goes out so.

        Nothing of it is kept.
        """
        view = self._prepared_view
        self._sent_view = (
            view if stage < 0 else apply_policy(self.stages[stage], view, self.run.room)
        )
        return self._sent_view

    def preview(self) -> tuple[tuple[Message, ...], int]:
        """Return what the next call would be sent uncompacted, and its tokens; nothing changes."""
        view = self.run.coming()
        return view.messages, view.tokens

    def tried(self, policy: Policy) -> Compaction | None:
        """Return what a policy would do now, or None where it does nothing; nothing changes."""
        before = self.run.history.at(self.run.call)
        after = apply_policy(policy, before, self.run.room)
        return (
            None
            if after is before
            else Compaction(self.run.call, before, after, "manual", name_of(policy))
        )

    def compact(self, policy: Policy, trigger: str = "manual") -> tuple[Edit, ...]:
        """Do what a policy does now; return the edits to keep, none where it does nothing.

        Raises:
            ModelError: the summariser failed.
        """
        planned = self.tried(policy)
        if planned is None:
            return ()
        done = self.run.by_hand(planned.new, trigger, planned.by)
        self.log.fixed = self.schemas
        return self._number_edits([done])

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
        billed_prompts = bills(self.log.replies, self.schemas)
        return estimate(self.schemas + view.tokens - view.fixed, billed_prompts)

    @property
    def tokens(self) -> int:
        """Tokens of the next prompt, as it stands, before any pruning."""
        return self.run.history.at(self.run.call).tokens

    @property
    def messages(self) -> int:
        """Messages of the next prompt, as it stands."""
        return len(self.run.history.at(self.run.call))

    def _number_edits(self, compactions: list[Compaction]) -> tuple[Edit, ...]:
        out: list[Edit] = []
        for compaction in compactions:
            for i, edit in enumerate(compaction.edits):
                name = f"{self._label}-{self._next_compaction}.{i}"
                inserted = tuple(_with_id(m, name, k) for k, m in enumerate(edit.inserted))
                out.append(_replace(edit, id=name, inserted=inserted))
            self._next_compaction += 1
        return tuple(out)


def _with_id(message: Message, edit: str, number: int) -> Message:
    """Give a message that an edit brings an id of its own, where it has none."""
    return message if message.id else _replace(message, id=f"{edit}/{number}")


def _count_messages(session: Session, counter: Any) -> list[int]:
    """Count every message: a live session's sizes are the counter's own, not scaled to usage."""
    from ctxkit.tokens import default_counter

    count = (counter or default_counter()).message
    return [count(m) for m in session.messages]


SaveArtifact = Callable[[str, str, str, str], None]
"""Keeps an artifact (id, text, tool, on what); raises `StoreError` or `OSError` where not."""


class ArtifactOffloader:
    """Keeps artifacts, each once.

    Args:
        save: None: there is no place for them, so that no result is offloaded.
    """

    def __init__(self, save: SaveArtifact | None) -> None:
        self._save_artifact = save
        self._saved_ids: set[str] = set()

    def settled(self, run: Run, shown: History) -> History:
        """Return what the last call is sent, without stubs that name nothing, else `shown`."""
        call = max(run.call - 1, 0)
        artifact_ids = {
            p: name for p, m in enumerate(shown.messages) if (name := artifact_in_stub(m))
        }
        missing = set(artifact_ids.values()) - self._saved_ids
        if not missing:
            return shown
        results, rows = _find_offloaded(run, missing), HistoryRows(run.history.at(call))
        places = {p: rows.place(shown.row(p)) for p in artifact_ids}
        for p, name in artifact_ids.items():
            if name in results and name not in self._saved_ids:
                place = places[p]
                asked = None if place is None else rows.asked(place)
                if self._save_result(name, results[name], asked):
                    self._saved_ids.add(name)
        sent = list(shown.messages)
        for p, name in artifact_ids.items():
            if name not in self._saved_ids:  # what no part tells of goes as the history has it
                place = places[p]
                original = sent[p] if place is None else rows.message(place)
                sent[p] = replace(sent[p], parts=results.get(name, original).parts)
        same = all(sent[p] == shown.messages[p] for p in artifact_ids)
        return shown if same else shown.become(sent, "no artifact could be kept")

    def _save_result(self, artifact: str, result: Message, call: ToolCall | None) -> bool:
        if self._save_artifact is None:
            return False
        tool = result.tool or (call.name if call else "unknown")
        try:
            self._save_artifact(artifact, result.text, tool, call_hint(call))
        except (StoreError, OSError):
            return False
        return True


def _find_offloaded(run: Run, artifact_ids: set[str]) -> dict[str, Message]:
    """Return the results that were offloaded at the last call, by their artifacts."""
    results: dict[str, Message] = {}

    def apply_part(part: BasePolicy, view: History) -> History:
        if isinstance(part, CompositePolicy):  # each works on what the one before left
            for each in part.parts:
                view = apply_part(each, view)
            return view
        if isinstance(part, Offload) and artifact_ids - results.keys():
            artifacts = part.artifacts(view.messages)
            results.update({name: artifacts[name] for name in artifact_ids & artifacts.keys()})
        return apply_policy(part, view, run.room)

    if run.rules.pruning is not None:
        apply_part(run.rules.pruning, run.history.at(max(run.call - 1, 0)))
    return results


class _PromptRun(NamedTuple):
    """A run, and the calls of it whose prompt was changed behind it: what went out, and by whom."""

    run: Run
    changed: dict[int, tuple[tuple[Message, ...], str]]
    schemas: int
    """Tokens of the tools' schemas, as counted."""


class SentPrompts:
    """The prompts of an agent. A reply names its call: branches and resumes do not mix."""

    def __init__(self) -> None:
        self._runs: list[_PromptRun] = []

    def begin(self, run: Run, schemas: int = 0) -> None:
        """Take the run that prepares the calls from now on.

        Args:
            run: prepares them.
            schemas: tokens of the tools' schemas in each of their prompts, as counted.
        """
        self._runs = [m for m in self._runs if m.run.call > m.run.begin]  # others made no call
        self._runs.append(_PromptRun(run, {}, schemas))

    def changed(self, messages: tuple[Message, ...], by: str) -> None:
        """Note that the last call goes out with these messages, and what changed them."""
        run, changed, _ = self._runs[-1]
        changed[run.call - 1] = messages, by

    def of(self, session: Session) -> SessionPrompts:
        """Return what the calls of a session were sent."""
        return SessionPrompts(self, session)

    def made(self, call: int, reply: Message | None) -> _PromptRun:
        """Return what made a call; made elsewhere: the latest, that has it as recorded."""
        for prompt_run in reversed(self._runs):
            replies = prompt_run.run.log.replies
            if reply is not None and prompt_run.run.begin <= call < len(replies):
                then = replies[call]
                if then is not None and then.id == reply.id:
                    return prompt_run
        return self._runs[-1]


class SessionPrompts:
    """What the calls of one session were sent."""

    def __init__(self, prompts: SentPrompts, session: Session) -> None:
        self._prompts, self._session = prompts, session

    @property
    def _latest_run(self) -> Run:
        return self._prompts.made(-1, None).run

    @property
    def prunes(self) -> bool:
        """True where calls are sent less than what stands."""
        return self._latest_run.prunes

    @property
    def counter(self) -> str:
        """Name of the counter of its sizes."""
        return self._latest_run.counter

    @property
    def schemas(self) -> int:
        """Tokens of the tools' schemas in each prompt, as counted."""
        return self._prompts.made(-1, None).schemas

    @property
    def counted_next(self) -> int:
        """Tokens of what the next call would be sent, uncompacted, as counted: schemas included."""
        view = self._latest_run.coming()
        return self.schemas + view.tokens - view.fixed

    @property
    def row_sizes(self) -> list[int]:
        """Tokens of each message that can be sent, as it was said."""
        return self._latest_run.row_sizes

    def prompt_sizes(self, calls: int) -> list[int | None]:
        """Return the tokens of the prompts of the first so many calls."""
        return [self.prompt_size(call) for call in range(calls)]

    def prompt_size(self, call: int) -> int:
        """Return the tokens of the prompt of a call, as the triggers had it."""
        run, *_ = self._find_run(call)
        if run.begin <= call < run.call:
            return run.sizes(call, call + 1)[0]
        return sum(item.tokens for item in self.sent(call))

    def sent(self, call: int | None) -> tuple[SentItem, ...]:
        """Return what went out at a call; None: what would go out next."""
        if call is None:
            return self._latest_run.sent(None)
        run, changed, _ = self._find_run(call)
        items = run.sent(call)
        return tuple(_changed_items(items, *changed[call], run)) if call in changed else items

    def left_out(self, call: int | None) -> dict[int, str]:
        """Return the rows that stood at a call and that were left out of it, with what did that."""
        if call is None:
            return self._latest_run.left_out(None)
        run, changed, _ = self._find_run(call)
        out = dict(run.left_out(call))
        if call in changed:
            there = {item.row for item in self.sent(call)}
            out.update({i.row: changed[call][1] for i in run.sent(call) if i.row not in there})
        return out

    def turnovers(self, start: int = 0, stop: int | None = None) -> Iterator[PromptChange]:
        """Yield what came into the prompt and went out of it at each call."""
        stop = len(self._session.calls) if stop is None else stop
        for _, calls in groupby(range(start, stop), key=self._group_key):
            span = list(calls)
            run, changed, _ = self._find_run(span[0])
            if any(call in changed for call in span):
                for call in span:
                    yield full_prompt_change(call, self.sent(call))
            else:
                yield from run.turnovers(span[0], span[-1] + 1)

    def _find_run(self, call: int) -> _PromptRun:
        return self._prompts.made(call, self._session.calls[call].message)

    def _group_key(self, call: int) -> tuple[int, bool]:
        prompt_run = self._find_run(call)
        return id(prompt_run.run), call in prompt_run.changed


def _changed_items(
    items: Sequence[SentItem], messages: tuple[Message, ...], by: str, run: Run
) -> Iterator[SentItem]:
    """Yield the items of a prompt as they went out after it was changed."""
    sent_messages = {_origin_id(m): m for m in messages}
    for item in items:
        message, row = sent_messages.get(_origin_id(item.message)), item.row
        if item.message.kind == FIXED_KIND:
            yield item
        elif message is None:
            continue
        elif message.parts == item.message.parts:
            yield item
        elif row >= 0 and run.log.messages[row].parts == message.parts:
            yield SentItem(message, item.raw_tokens, item.raw_tokens, None, row)
        else:
            tokens = run.log.measure(message, row)
            yield SentItem(message, tokens, item.raw_tokens, by, row, pruned=True)


def _origin_id(message: Message) -> str:
    """Return the id of the message that one was made from."""
    return message.id.split("~")[0]
