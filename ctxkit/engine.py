"""The one engine: bring a run up to a call by jumping from trigger to trigger. Live stops at the next call, a replay at the end."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ctxkit.errors import ModelError
from ctxkit.history import History, Log
from ctxkit.messages import Edit
from ctxkit.policies.chain import applied
from ctxkit.policies.outlooks import Sampled, Straight, common
from ctxkit.policies.policy import name_of
from ctxkit.policies.triggers import first_due

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ctxkit.history import Step
    from ctxkit.messages import Message
    from ctxkit.policies.rules import Rules
    from ctxkit.session import Session
    from ctxkit.sizes import Sizes
    from ctxkit.tokens.counters import Counter

_replace = msgspec.structs.replace


class Cut(msgspec.Struct, frozen=True, gc=False):
    """One compaction that was kept: before which call, and what it did."""

    call: int
    was: History
    new: History
    trigger: str

    @property
    def steps(self) -> tuple[Step, ...]:
        """The verbs that did it."""
        return self.new.steps

    @property
    def before(self) -> int:
        """Tokens of the prompt without it."""
        return self.was.tokens

    @property
    def after(self) -> int:
        """Tokens of the prompt with it, before any pruning."""
        return self.new.tokens

    @property
    def messages_before(self) -> int:
        """Messages shown without it."""
        return len(self.was)

    @property
    def messages_after(self) -> int:
        """Messages shown with it."""
        return len(self.new)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What it did as edits that a session can hold; made when asked for."""
        return tuple(_replace(e, trigger=self.trigger) for e in self.new.edits)


class Held(NamedTuple):
    """A compaction that was due and did not happen."""

    call: int
    guard: str
    """What held it back or refused its result; the policy itself where it failed."""
    why: str


class Event(NamedTuple):
    """The start or the end of a policy's work, for hooks and logs."""

    kind: str
    """`start` or `end`."""
    call: int
    policy: str
    messages: int
    tokens: int
    outcome: str = ""
    """At the end: `compacted`, `nothing`, `refused` or `failed`."""
    error: str | None = None


class Run:
    """A run so far: a log, the history in force, what was done, and the bill. It is brought on by `advance`.

    `total`, `fresh` and `peak` are sums and the maximum of the prompts sent: all tokens, those that are no cached
    prefix, the largest prompt. `prompts` and `fresh_tokens` give them for each call, derived when asked for.
    """

    def __init__(self, log: Log, rules: Rules, limit: int | None = None) -> None:
        self.log, self.rules, self.room = log, rules, rules.room(log, limit)
        self.clock = log.clock(rules.cache_life)
        self.history = History.start(log)
        self.begin = self.call = 0
        self.cuts: list[Cut] = []
        self.held: list[Held] = []
        self.warned: list[tuple[int, str]] = []
        self.asked: list[tuple[History, str, str | None]] = []
        """Where the policy was asked and nothing came of it: the history, how it ended, and why."""
        self.total = self.fresh = self.peak = 0
        self._stretches: list[tuple[int, int, Any, Any]] = []
        """First and last call, sizes and fresh tokens; without the latter the size is what to add to the log's."""
        self._noted: set[int] = set()
        self._unsent: History | None = None

    # -- what was sent -----------------------------------------------------------------------------------------------

    @property
    def prompts(self) -> NDArray[Any]:
        """Prompt tokens of each call so far."""
        sizes = self.log.tokens.calls(0, self.call)
        parts = [_array(size) if fresh is not None else sizes[a:b] + size for a, b, size, fresh in self._stretches]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    @property
    def fresh_tokens(self) -> NDArray[Any]:
        """Tokens of each call so far that are no cached prefix."""
        parts: list[NDArray[Any]] = [np.zeros(0, np.int64)]
        clock = self.clock.sync()
        for a, b, size, fresh in self._stretches:
            if fresh is None:
                sizes, before = self.log.tokens.calls(a, b), np.array(clock.before[a:b], np.int64)
                fresh = np.where(clock.cold[a:b], sizes + size, np.maximum(sizes - before, 0))  # noqa: PLW2901
            parts.append(_array(fresh))
        return np.concatenate(parts)

    def sent(self, start: int, stop: int) -> list[int]:
        """Return the prompt tokens billed for the calls start..stop."""
        found: list[int] = []
        for a, b, size, fresh in reversed(self._stretches):
            if b <= start:
                break
            lo, hi = max(a, start), min(b, stop)
            if lo < hi:
                part = _array(size)[lo - a : hi - a] if fresh is not None else self.log.tokens.calls(lo, hi) + size
                found[:0] = part.tolist()
        return found

    def shown(self) -> History:
        """Return what the last call was sent, pruned; its `messages` are made when asked for."""
        view = self.history.at(max(self.call - 1, 0))
        return view if self.rules.pruning is None else applied(self.rules.pruning, view, self.room)

    def coming(self) -> History:
        """Return what the next call would be sent, pruned, if nothing were compacted."""
        view = self.history.at(self.call)
        return view if self.rules.pruning is None else applied(self.rules.pruning, view, self.room)

    # -- what was done -----------------------------------------------------------------------------------------------

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits that were kept, in order; made when asked for."""
        return tuple(e for cut in self.cuts for e in cut.edits)

    @property
    def events(self) -> tuple[Event, ...]:
        """The start and the end of each work of the policy."""
        name = name_of(self.rules.policy)
        done = [(was, was, outcome, error) for was, outcome, error in self.asked]
        done += [(cut.was, cut.new, "compacted", None) for cut in self.cuts]
        out = []
        for was, new, outcome, error in sorted(done, key=lambda d: d[0].call):
            out.append(Event("start", was.call, name, len(was), was.tokens))
            out.append(Event("end", was.call, name, len(new), new.tokens, outcome, error))
        return tuple(out)

    @property
    def errors(self) -> tuple[Held, ...]:
        """The failures of the policy."""
        return tuple(h for h in self.held if h.why.startswith("failed: "))

    # -- the bill ----------------------------------------------------------------------------------------------------

    def bill(self, look: Straight, start: int, stop: int) -> None:
        """Write down the calls start..stop, of which the outlook knows the sizes."""
        if stop <= start:
            return
        if self._unsent is not None:  # edited by hand since the last call: the first one's prefix is compared
            view = self._view(self.history.at(start))
            self._one(start, look.size(start), self._prefix(start, self._unsent, view))
            self._unsent = None
            start += 1
            if stop <= start:
                return
        total, fresh, peak = look.bill(start, stop, self.clock)
        self.total += total
        self.fresh += fresh
        if peak > self.peak:
            self.peak = peak
        if type(look) is Straight:
            self._stretches.append((start, stop, look.off, None))
        else:
            self._stretches.append((start, stop, look.prompts(start, stop), look.fresh(start, stop, self.clock)))

    def take(self, cut: Cut, look: Straight) -> None:
        """Write down a compaction and the call that follows it."""
        call, new = cut.call, cut.new
        if type(look) is Straight and self._unsent is None:
            size = new.tokens
            cached = min(new.stable, look.off + self.clock.before[call])
        else:
            view = self._view(new)
            size, cached = view.tokens, self._prefix(call, self._unsent or self.history, view)
        self._one(call, size, cached)
        self._unsent = None
        self.cuts.append(cut)
        self._noted.clear()
        if self.rules.on_compacted is not None:
            self.rules.on_compacted(new.messages)

    def note(self, look: Straight, start: int, stop: int) -> None:
        """Write down each warning that is due in the calls start..stop, once until the next compaction."""
        new = []
        for i, trigger in enumerate(self.rules.warnings):
            if i not in self._noted:
                call = first_due(trigger, look, start, stop)
                if call < stop:
                    self._noted.add(i)
                    new.append((call, i, name_of(trigger)))
        self.warned += [(call, name) for call, _, name in sorted(new)]

    def _one(self, call: int, size: int, cached: int) -> None:
        fresh = size if self.clock.cold[call] or not cached else max(size - cached, 0)
        self.total += size
        self.fresh += fresh
        if size > self.peak:
            self.peak = size
        self._stretches.append((call, call + 1, size, fresh))

    def _view(self, history: History) -> History:
        return history if self.rules.pruning is None else applied(self.rules.pruning, history, self.room)

    def _prefix(self, call: int, sent: History, view: History) -> int:
        """Return the tokens that a view shares with what the call before was sent."""
        return common(self._view(sent.at(call - 1)), view) if call > self.begin else 0

    def by_hand(self, new: History, trigger: str = "manual") -> Cut:
        """Take over what a policy made of `history.at(call)`, before the next call is sent."""
        was = self.history.at(self.call)
        cut = Cut(self.call, was, new, trigger)
        self._unsent = self._unsent or self.history
        self.cuts.append(cut)
        self._noted.clear()
        self.history = new.at(self.call)
        if self.rules.on_compacted is not None:
            self.rules.on_compacted(new.messages)
        return cut


def _array(sizes: Any) -> NDArray[Any]:
    return np.atleast_1d(np.asarray(sizes, np.int64))


def advance(run: Run, rules: Rules, stop: int) -> Run:
    """Bring a run up to the call `stop` (exclusive): bill what lies before the next compaction, guard it, do it, go on."""
    history, call, policy = run.history, run.call, rules.policy
    if stop > call:
        run.clock.sync()
    trigger = name_of(rules.trigger)
    idle = policy is None or not rules.auto
    first = None if rules.guards or hasattr(policy, "first") else getattr(rules.trigger, "first", None)
    look: Straight | None = None
    while call < stop:
        if look is None:
            look = _outlook(run, rules, history, call, stop)
        if idle:
            due = stop
        else:
            due = _due(run, rules, look, call, stop) if first is None else first(look, call, stop)
        if rules.warnings:
            run.note(look, call, min(due + 1, stop))
        if due > call:
            run.bill(look, call, due)
        call = due
        if due == stop:
            break
        was = history.at(due)
        new, outcome, why = _compacted(run, rules, was)
        if new is was:
            run.asked.append((was, outcome, why))
            run.bill(look, due, due + 1)
        else:
            run.take(Cut(due, was, new, trigger), look)
            history, look = new, None
            run.history = history
        call = due + 1
        run.call = call
    run.history, run.call = history, call
    return run


def run(log: Log, rules: Rules, limit: int | None = None) -> Run:
    """Return the run of a whole log under rules; `limit` is the model's window where the rules name none."""
    return advance(Run(log, rules, limit), rules, log.calls)


def _outlook(run: Run, rules: Rules, history: History, call: int, stop: int) -> Straight:
    if rules.pruning is None:
        return Straight(history, run.room, run.sent)
    warm = call > run.begin and run._unsent is None  # noqa: SLF001  one module, one engine
    return Sampled(history, run.room, rules.pruning, run.clock, (call, stop), warm=warm, sent=run.sent)


def _due(run: Run, rules: Rules, look: Straight, start: int, stop: int) -> int:
    """Return the first call at which the trigger is due, the policy can do something and no guard is closed."""
    call = _wanted(rules, look, start, stop)
    while call < stop and rules.guards:
        later = max(guard.first(run, look, call, stop) for guard in rules.guards)
        if later <= call:
            break
        while call < later:
            guard = next(g for g in rules.guards if g.first(run, look, call, call + 1) > call)
            run.held.append(Held(call, name_of(guard), "held back"))
            call = _wanted(rules, look, call + 1, later)
        call = _wanted(rules, look, later, stop)
    return call


def _wanted(rules: Rules, look: Straight, start: int, stop: int) -> int:
    """Return the first call at which the trigger is due and the policy can do something."""
    able = getattr(rules.policy, "first", None)
    call = first_due(rules.trigger, look, start, stop)
    while able is not None and call < stop:
        later = able(look, call, stop)
        if later == call:
            break
        call = first_due(rules.trigger, look, later, stop)
    return call


def _compacted(run: Run, rules: Rules, was: History) -> tuple[History, str, str | None]:
    """Ask the policy; a failure or a refused result leaves the history as it was, and a note."""
    try:
        new = applied(rules.policy, was, run.room)
    except ModelError as error:
        run.held.append(Held(was.call, name_of(rules.policy), f"failed: {error}"))
        return was, "failed", str(error)
    if new is was:
        return was, "nothing", None
    for guard in rules.guards:
        why = guard.refuses(run, was, new)
        if why:
            run.held.append(Held(was.call, name_of(guard), why))
            return was, "refused", why
    return new, "compacted", None


def woven(messages: Iterable[Message], done: Run) -> Iterator[Message | Edit]:
    """Yield what was said with the edits of a run, each before the reply of the call at which it was made."""
    log, name = done.log, done.rules.label
    before: dict[int, list[tuple[int, Cut]]] = {}
    for n, cut in enumerate(done.cuts):
        reply = log.replies[cut.call] if cut.call < log.calls else None
        if reply is None and cut.call < log.calls and log.upto[cut.call] < len(log):
            reply = log.messages[log.upto[cut.call]]  # the call was never answered: before what was said next
        before.setdefault(0 if reply is None else id(reply), []).append((n, cut))
    for message in messages:
        for n, cut in before.get(id(message), ()):
            yield from _named(name, n, cut)
        yield message
    for n, cut in before.get(0, ()):
        yield from _named(name, n, cut)


def _named(name: str, n: int, cut: Cut) -> Iterator[Edit]:
    for i, edit in enumerate(cut.edits):
        yield _replace(edit, id=f"{name}-{n}.{i}")


# -- from a session to its log ---------------------------------------------------------------------------------------------


def log_of(
    session: Session,
    rules: Rules | None = None,
    *,
    tokens: Sequence[int] | None = None,
    fixed: int | None = None,
    as_recorded: bool = False,
) -> Log:
    """Return the log of what was said in a session; recorded compactions are lifted out of it.

    Args:
        session: any session; its subagents are logs of their own.
        rules: their counter and estimator are used.
        tokens: one size a message of `session.messages`; None: the sizes anchored on recorded usage.
        fixed: tokens of each prompt that no message holds; None: as far as recorded usage tells.
        as_recorded: let the fixed part change at each call as recorded, also where a compaction changed it, and leave
            out what the record shows to have gone unsent (old reasoning, for one); else only an agent or a model
            changes it, and all that is shown is sent: what would have gone unsent of another view, no log says.
    """
    from ctxkit.sizes import sizes
    from ctxkit.tokens.catalogue import default

    counter: Counter = (rules.counter if rules else None) or default()  # type: ignore[assignment]
    session = identified(session)
    anchored = sizes(session, counter) if tokens is None else None
    log = Log(counter, agent=session.agent, estimator=rules.estimator if rules else None)  # type: ignore[arg-type]
    if anchored is not None:
        tokens = anchored.tokens
        brought = [m for e in session.edits for m in e.inserted]
        known = {id(m): size for m, size in zip(brought, anchored.inserted, strict=True)}
        log.known = lambda message: known.get(id(message))
        log.scale = 1.0 if anchored.error is None else 1 / (1 + anchored.error)
        log.memo["session"] = session  # sizes are found by identity: the messages must live as long as the log
    assert tokens is not None  # noqa: S101  for the type checker
    parts = _fixed_parts(session, anchored, fixed, as_recorded)
    sizes_of, calls, turns = iter(tokens), iter(parts), session.turns
    for position, entry in enumerate(session.path):
        if isinstance(entry, Edit):
            log.recorded.append((log.calls, entry))
            continue
        size = next(sizes_of)
        if entry.role == "assistant":
            log.open(_sent_at(log, entry), entry.agent, next(calls))
        log.append(entry, size, turn=turns[position])
    return log


def identified(session: Session) -> Session:
    """Return the session with an id of its own for every message: itself, where each has one."""
    seen = Tally(m.id for m in session.messages)
    if not seen[""] and len(seen) == len(session.messages):
        return session
    used: set[str] = set()
    log = []
    for n, entry in enumerate(session.log):
        if not isinstance(entry, Edit) and (not entry.id or entry.id in used):
            entry = _replace(entry, id=f"{entry.id or 'message'}#{n}")  # noqa: PLW2901
        used.add(entry.id)
        log.append(entry)
    return _replace(session, log=tuple(log))


def _sent_at(log: Log, reply: Message) -> float | None:
    """Return when a call was sent: its end less its latency, else the time of what was said before it."""
    if reply.time is not None and reply.latency is not None:
        return reply.time - reply.latency
    return log.messages[-1].time if log.messages else None


def _fixed_parts(session: Session, anchored: Sizes | None, fixed: int | None, as_recorded: bool) -> list[int]:
    """Return the fixed part of each call's prompt."""
    if fixed is not None or anchored is None or not anchored.fixed_at:
        return [fixed or 0] * len(session.calls)
    if as_recorded:
        return [n - unsent for n, unsent in zip(anchored.fixed_at, anchored.unsent_at, strict=True)]
    first: dict[tuple[str, str | None], int] = {}
    return [first.setdefault((c.agent, c.message.model), anchored.fixed_at[c.index]) for c in session.calls]
