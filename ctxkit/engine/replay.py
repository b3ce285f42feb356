"""A recorded session replayed under other rules; the trajectory stays as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ctxkit.engine import Run, log_from_session, run_rules, weave_edits, with_message_ids
from ctxkit.formats.inputs import accepts_session
from ctxkit.policies.history.columns import TOOL
from ctxkit.policies.protocols import name_of
from ctxkit.policies.rules import (
    THRESHOLD_NAMES,
    RecordedCompactions,
    budget_thresholds,
    recorded_rules,
)
from ctxkit.presets.registry import resolve_rules
from ctxkit.session.messages import Edit, Message, Usage
from ctxkit.tokens.live_prompt_sizes import billed_prompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.sent import SentItem
    from ctxkit.policies.rules import Rules
    from ctxkit.presets.registry import RulesLike
    from ctxkit.session.session import Session

_replace = msgspec.structs.replace
_THRESHOLD_KEYS = frozenset(THRESHOLD_NAMES)


@accepts_session
def replay(
    session: Session,
    rules: RulesLike,
    *,
    tokens: Sequence[int] | None = None,
    fixed: int | None = None,
    last_usage: bool = False,
) -> Session:
    """Return a session as its calls would have been sent under other rules.

    The log holds what was said, with the edits of these rules placed before the call at which they
    were made; recorded compactions are lifted out. Each reply keeps its recorded output; its prompt
    is the modelled one (derived), split into fresh and cached tokens where the record itself tells
    them apart. Subagents are replayed by themselves.

    Args:
        session: any session, the path of a log, or a list of messages; a replay may be replayed.
        rules: rules, a preset or its name, a policy (asked before every call) or its words.
        tokens: one size a message of `session.messages`; None: the sizes anchored on recorded
            usage.
        fixed: tokens of each prompt that no message holds; None: as far as recorded usage tells.
        last_usage: go by what was known before each call, the last bill and a count of what came
            since, as a live session does; held against a replay without it, this tells how many
            calls too late a trigger fires.

    Raises:
        BadArguments: the rules cannot work.
        UnsoundHistory: a policy parted a tool call from its result.
    """
    rules = resolve_rules(rules)
    session = with_message_ids(session)
    done = run_replay(session, rules, tokens=tokens, fixed=fixed, last_usage=last_usage)
    children = tuple(replay(child, rules, last_usage=last_usage) for child in session.children)
    return session_from_run(session, done, children)


def run_replay(
    session: Session,
    rules: RulesLike,
    *,
    tokens: Sequence[int] | None = None,
    fixed: int | Sequence[int] | None = None,
    last_usage: bool = False,
) -> Run:
    """Return the run behind a replay: prompts, fresh tokens, compactions, held back, events."""
    rules = resolve_rules(rules)
    as_recorded = isinstance(rules.policy, RecordedCompactions)
    log = log_from_session(
        session, rules, tokens=tokens, fixed=fixed, as_recorded=as_recorded, last_usage=last_usage
    )
    return run_rules(log, rules, context_window_of(session))


def context_window_of(session: Session) -> int | None:
    """Return the model's limit: as the log says, else by the price table as far as the log does not
    refute it. Of Codex's, whose log says 95 % of it, it is the whole.
    """
    from ctxkit.tokens.context_windows import get_full_context_window

    told = next((m for m in session.messages if m.context_window or m.model), None)
    model = session.model if told is None else told.model or session.model
    return get_full_context_window(session, model, told)


def session_from_run(session: Session, done: Run, children: tuple[Session, ...] = ()) -> Session:
    """Return the session that a run describes."""
    prompts, fresh, shared = (
        done.prompts.tolist(),
        done.fresh_tokens.tolist(),
        shared_prompt_tokens(done).tolist(),
    )
    cached, billed, call = session.has_cache, session.has_usage, 0
    log: list[Message | Edit] = []
    for entry in weave_edits(session.messages, done):
        if isinstance(entry, Message) and entry.role == "assistant":
            new = fresh[call] if cached else None
            if not (
                done.owing and billed_prompt(entry) == prompts[call]
            ):  # else its bill holds as it is
                entry = _modelled_reply(entry, prompts[call], new, shared[call], billed=billed)  # noqa: PLW2901
            call += 1
        log.append(entry)
    made = _replace(
        session,
        format="replay",
        log=tuple(log),
        parents=(),
        leaf=-1,
        children=children,
        details={**session.details, **budget_thresholds(done.rules), "replay": run_summary(done)},
        origin=session.origin or session,
    )
    return made.backed(done)


def sent_prompt(session: Session, call: int | None) -> tuple[SentItem, ...]:
    """Return what went out at a call of a session (negatives from the end), message by message.

    A replay and a live session have the run that they were made of; of a record it is made from
    its messages and its own compactions. First stands, where it is known to be there, what no
    message holds (system prompt, tool schemas), as an item of the kind `fixed`.

    Args:
        session: any session.
        call: number of the call; None: what goes out next, if nothing is compacted.

    Raises:
        BadArguments: the session has no such call.
    """
    index = None if call is None else session.call(call).index
    done = session.behind or session.__dict__.get("run of the record")
    if done is None:
        done = session.__dict__["run of the record"] = run_replay(session, recorded_rules())
    return tuple(done.sent(index))


def run_summary(done: Run) -> dict[str, Any]:
    """Return what a run did beside its edits, as plain values."""
    rules: Rules = done.rules
    return {
        "rules": rules.label,
        "parameters": {
            k: v if isinstance(v, (int, float, str, bool, type(None))) else str(v)
            for k, v in rules.parameters.items()
        },
        "limit": done.room.limit,
        "counter": done.log.counter.name,
        "held": [h._asdict() for h in done.held],
        "warned": [{"call": call, "trigger": name} for call, name in done.warned],
        "events": [e._asdict() for e in done.events],
        "total_tokens": done.total,
        "fresh_tokens": done.fresh,
        "peak_tokens": done.peak,
        "hidden": list(count_hidden(done)),
        "pruning": None if rules.pruning is None else name_of(rules.pruning),
        "note": crowded_note(done),
    }


def crowded_note(done: Run) -> str | None:
    """Return a note where the prompt's fixed part alone fills the rules' window; else None."""
    fixed, room = done.log.fixed, done.room
    if fixed < room.budget:
        return None
    held = f", {room.reserve:,} of them held free" if room.reserve else ""
    return (
        f"The fixed part of the prompt ({fixed:,} tokens) does not fit into the window that these"
        f" rules go by ({room.limit:,} tokens{held}), so no compaction makes a prompt fit."
    )


def shared_prompt_tokens(done: Run) -> NDArray[Any]:
    """Return for each call the tokens shared with the prompt before, cached still or not."""
    prompts, fresh = done.prompts, done.fresh_tokens
    shared = np.asarray(prompts - fresh)
    for call in done.clock.calls:
        if done.begin < call < done.call:
            known = done.in_common.get(call, int(prompts[call - 1]))
            shared[call] = min(known, int(prompts[call]))
    return shared


def count_hidden(done: Run) -> tuple[int, int]:
    """Return how many messages, and results among them, the next call would not see as said."""
    view, log = done.coming(), done.log
    stand = view.head.said()
    results = sum([log.roles[row] == TOOL for row in stand])
    return view.lo - len(stand), log.counts[TOOL][view.lo] - results


def _modelled_reply(
    message: Message, prompt: int, fresh: int | None, shared: int, *, billed: bool
) -> Message:
    """Return a reply whose usage says what the modelled prompt would have been; output as recorded,
    no cost.

    Where the record bills its calls and not this one, as it failed, it stays without usage: the
    prompt stands in its details.
    """
    if not _THRESHOLD_KEYS.isdisjoint(message.details):
        kept = {k: v for k, v in message.details.items() if k not in _THRESHOLD_KEYS}
        message = _replace(message, details=kept)
    if billed and message.usage is None:
        told = {"usage_source": "derived", "shared_tokens": shared, "prompt_tokens": prompt}
        return _replace(message, details={**message.details, **told})
    was = message.usage or Usage()
    usage = Usage(
        input_tokens=prompt if fresh is None else fresh,
        cache_read_tokens=None if fresh is None else prompt - fresh,
        output_tokens=was.output_tokens,
        reasoning_tokens=was.reasoning_tokens,
    )
    told = {"usage_source": "derived", "shared_tokens": shared}
    return _replace(message, usage=usage, details={**message.details, **told})
