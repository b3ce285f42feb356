"""Replays: the prompts and costs of a recorded session under other context rules.

The trajectory (messages, tool calls, replies) stays as it was recorded.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ctxkit.engine import (
    RulesRun,
    interleave_edits,
    make_log_from_session,
    run_rules,
    with_message_ids,
)
from ctxkit.engine.context_rules_run import find_first_compaction_call
from ctxkit.engine.prompt_checks_and_repairs import count_refused_calls
from ctxkit.engine.run_and_session_conversion import with_recorded_calls
from ctxkit.engine.sent_prompts import SentPrompts
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.policies.compaction_and_pruning_rules import (
    THRESHOLD_NAMES,
    RecordedCompactionsPolicy,
    get_warn_and_cutover_tokens,
    recorded_rules,
)
from ctxkit.policies.history.growing_columns_and_sums import TOOL
from ctxkit.policies.protocols import name_of
from ctxkit.presets.inert_settings import describe_inert_settings
from ctxkit.presets.registry_and_setting_checks import resolve_rules
from ctxkit.presets.systems.swe_agent_mask import swe_agent_mask
from ctxkit.session.compactions_and_prunings import PRUNED_KEY
from ctxkit.session.messages import REPORTED_CONTEXT_KEY, Edit, Message, Usage
from ctxkit.tokens.live_prompt_sizes import estimate_schema_tokens, get_billed_prompt
from ctxkit.tokens.message_sizes_from_recorded_prompts import has_mask_processor, measure_sizes
from ctxkit.tokens.token_counters import default_counter, get_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.run_segments_and_prompts import SentItem
    from ctxkit.engine.sent_prompts import SessionPrompts
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.presets.registry_and_setting_checks import RulesLike
    from ctxkit.session.session import Session
    from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes
    from ctxkit.tokens.token_counters import TokenCounter

_replace = msgspec.structs.replace
_DETAILS_OF_RECORD = frozenset({*THRESHOLD_NAMES, PRUNED_KEY, REPORTED_CONTEXT_KEY})
"""Keys of the details of a reply that hold for the recorded rules alone."""


@accepts_session
def replay(
    session: Session,
    rules: RulesLike,
    *,
    tokens: Sequence[int] | None = None,
    fixed: int | None = None,
    last_usage: bool = False,
) -> Session:
    """Replay a session under other context rules.

    The replay has the recorded messages, with the edits of these rules before the calls at which
    they happen; recorded compactions are removed. Each reply keeps its recorded output. Its prompt
    tokens are modelled (`usage_source` is `derived`), split into uncached and cached ones where the
    record has that split. Subagents are replayed by themselves.

    Args:
        session: any session, the path of a log, or a list of messages; a replay may be replayed.
        rules: rules, a preset or its name, a policy (run before every call) or its text form.
        tokens: one size a message of `session.messages`, in tokens; None: sizes that are anchored
            on the recorded usage.
        fixed: tokens of each prompt that no message holds; None: what the recorded usage gives.
        last_usage: let triggers go by what a live session knows before each call: the last bill
            plus a count of the messages since. Compared with a replay without it, this shows how
            many calls too late a trigger fires.

    Returns:
        A session: pass it to any frame, plot or metric, or replay it again.

    Raises:
        BadArguments: the rules cannot work.
        UnsoundHistory: a policy separated a tool call from its result.

    Example:
        >>> import ctxkit as ck
        >>> again = ck.replay(ck.samples.path("billing"), "pi")
        >>> len(again.edits) > 0
        True
    """
    rules = resolve_rules(rules)
    session = with_message_ids(session)
    run = run_replay(session, rules, tokens=tokens, fixed=fixed, last_usage=last_usage)
    children = tuple(replay(child, rules, last_usage=last_usage) for child in session.children)
    return make_session_from_run(session, run, children)


def run_replay(
    session: Session,
    rules: RulesLike,
    *,
    tokens: Sequence[int] | None = None,
    fixed: int | Sequence[int] | None = None,
    last_usage: bool = False,
) -> RulesRun:
    """Run a session's log under rules; return the run behind a replay.

    Args:
        session: a recorded session.
        rules: rules, a preset or its name.
        tokens: as `make_log_from_session` takes it.
        fixed: the same.
        last_usage: the same.

    Returns:
        The finished run: `prompts` and `fresh_tokens` have one value a call, in tokens;
        `compactions`, `events` and `errors` are in order of calls.

    Raises:
        BadArguments: the rules are none, or have a setting that they cannot have.

    Example:
        >>> import ctxkit as ck
        >>> run = run_replay(ck.read(ck.samples.path("billing")), "pi")
        >>> run.prompts.tolist()[:3]
        [1625, 2200, 2487]
    """
    rules, limit = resolve_rules(rules), find_context_window(session)
    is_measured = tokens is None and fixed is None and not last_usage
    sizes = measure_sizes(session, rules.counter) if is_measured else None

    def build_log(recorded_calls: int) -> MessageLog:
        return make_log_from_session(
            session,
            rules,
            tokens=tokens,
            fixed=fixed,
            recorded_calls=recorded_calls,
            last_usage=last_usage,
            anchored=sizes,
        )

    return run_rules(
        build_log_keeping_recorded_sizes(session, sizes, rules, limit, build_log), rules, limit
    )


def build_log_keeping_recorded_sizes(
    session: Session,
    sizes: MessageSizes | None,
    rules: Rules,
    limit: int | None,
    build_log_with_recorded_calls: Callable[[int], MessageLog],
) -> MessageLog:
    """Return the log that rules run over, with the calls sized as recorded that they leave so.

    The record's own rules leave all calls as recorded. Of a record without compactions others leave
    the calls before the first one at which they are due, so that rules that never are send what
    was sent. Prunings change single calls, so under them no call is taken as recorded.

    Args:
        session: the record.
        sizes: its sizes; None: they were given, with the fixed part of each prompt.
        rules: the rules.
        limit: the window, in tokens, where the rules have none.
        build_log_with_recorded_calls: returns the log with so many calls sized as recorded (see
            `make_log_from_session`).
    """
    calls = len(session.calls)
    if isinstance(rules.policy, RecordedCompactionsPolicy):
        return build_log_with_recorded_calls(calls)
    is_regular = sizes is None or sizes.is_regular
    if is_regular or session.edits or rules.pruning is not None:
        return build_log_with_recorded_calls(0)
    log = build_log_with_recorded_calls(calls)
    first = find_first_compaction_call(log, rules, limit)
    return log if first >= calls else with_recorded_calls(log, first)


def find_context_window(session: Session) -> int | None:
    """Return the model's context window in tokens; None where it is unknown.

    The log's own figure comes first, then the price table's, unless a prompt of the log is larger.
    A Codex log gives 95 % of the window; the whole window is returned.

    Args:
        session: a recorded or live session.

    Returns:
        The whole window of the first model of the session, in tokens, or None.

    Example:
        >>> import ctxkit as ck
        >>> find_context_window(ck.read(ck.samples.path("billing")))
        48000
    """
    from ctxkit.tokens.context_windows import get_full_context_window

    reply = next((m for m in session.messages if m.context_window or m.model), None)
    model = session.model if reply is None else reply.model or session.model
    return get_full_context_window(session, model, reply)


def make_session_from_run(
    session: Session, run: RulesRun, children: tuple[Session, ...] = ()
) -> Session:
    """Return the replay of a session: its messages with the edits and prompt sizes of a run.

    Args:
        session: the record.
        run: a run over its log.
        children: replays of its subagents.

    Returns:
        A session with `origin` set to the record; prompts of its calls are asked of the run.
    """
    prompts, fresh, shared = (
        run.prompts.tolist(),
        run.fresh_tokens.tolist(),
        compute_shared_tokens(run).tolist(),
    )
    cached, billed, call = session.has_cache, session.has_usage, 0
    log: list[Message | Edit] = []
    for entry in interleave_edits(session.messages, run):
        if isinstance(entry, Message) and entry.role == "assistant":
            new = fresh[call] if cached else None
            # a recorded bill that equals the modelled prompt stays as it is
            if not (run.owing and get_billed_prompt(entry) == prompts[call]):
                entry = _modelled_reply(entry, prompts[call], new, shared[call], billed=billed)  # noqa: PLW2901
            call += 1
        log.append(entry)
    replayed = _replace(
        session,
        format="replay",
        log=tuple(log),
        parents=(),
        leaf=-1,
        children=children,
        details={
            **session.details,
            **get_warn_and_cutover_tokens(run.rules),
            "replay": summarize_run(run) | {"refused_calls": count_refused_calls(session, run)},
        },
        origin=session.origin or session,
    )
    return replayed.set_prompt_source(run)


def get_sent_prompt(session: Session, call: int | None) -> tuple[SentItem, ...]:
    """Return the prompt of a call of a session, message by message.

    A replay and a live session have their run; a recorded session is run with its own compactions.
    The part that no message holds (system prompt, tool schemas) comes first, as an item of the kind
    `fixed`, where its size is known.

    Args:
        session: any session.
        call: number of the call, negatives from the end; None: the next call, as if nothing were
            compacted before it.

    Raises:
        BadArguments: the session has no such call.
    """
    index = None if call is None else session.call(call).index
    return tuple((session.prompt_source or run_recorded_compactions(session)).sent(index))


def run_recorded_compactions(session: Session) -> RulesRun:
    """Return the run of a record under its own compactions, and the mask of its processor.

    It is made once. Its prompts are counted as those of a replay are.

    Args:
        session: a recorded session.

    Returns:
        The run, cached with the session.
    """
    run: RulesRun | None = session.__dict__.get("run of the record")
    if run is None:
        rules = recorded_rules()
        if has_mask_processor(session):
            n_results = session.details["history_processor"].get("n", 0)
            rules = rules.but(pruning=swe_agent_mask(n=n_results).pruning)
        run = session.__dict__["run of the record"] = run_replay(session, rules)
    return run


def find_prompt_source(session: Session) -> Any:
    """Return the run or record that tells what prunings changed in a session's prompts.

    That is the run of a replay, the prompts of a live session, the prunings that a log records, or
    the mask that a reader inferred. None: edits alone changed the prompts.
    """
    if session.prompt_source is None and has_mask_processor(session):
        return run_recorded_compactions(session)
    return session.prompt_source


def rebuild_sent_prompts(session: Session) -> SessionPrompts:
    """Return the prompts that a session's calls were sent, from the prunings that its log records.

    Sizes are counts, as in the session while it ran, by the counter that it used.
    """
    rules = recorded_rules().but(counter=_find_recorded_counter(session))
    log = make_log_from_session(session, rules, recorded_calls=len(session.calls), last_usage=True)
    run = run_rules(log, rules, find_context_window(session))
    run.begin = run.call  # its calls were made by another process
    prompts = SentPrompts()
    prompts.begin(run, estimate_schema_tokens(session.tools))
    return prompts.of(session)


def _find_recorded_counter(session: Session) -> TokenCounter:
    """Return the counter of a session's pruned prompts; the default one where it is unknown."""
    with suppress(BadArguments):
        return get_counter(session.prunings.at(None).counter)
    return default_counter()


def summarize_run(run: RulesRun) -> dict[str, Any]:
    """Return the outcome of a run apart from its edits, as plain values for `details`."""
    rules: Rules = run.rules
    return {
        "rules": rules.label,
        "parameters": {
            k: v if isinstance(v, (int, float, str, bool, type(None))) else str(v)
            for k, v in rules.parameters.items()
        },
        "limit": run.budget.limit,
        "counter": run.log.counter.name,
        "held": [h._asdict() for h in run.blocked],
        "warned": [{"call": call, "trigger": name} for call, name in run.warned],
        "events": [e._asdict() for e in run.events],
        "total_tokens": run.total,
        "fresh_tokens": run.fresh,
        "peak_tokens": run.peak,
        "hidden": list(count_hidden_messages_and_results(run)),
        "pruning": None if rules.pruning is None else name_of(rules.pruning),
        "note": describe_run_oddities(run),
    }


def describe_run_oddities(run: RulesRun) -> str | None:
    """Return notes on a run's rules: settings without effect, a window that is full.

    Args:
        run: a finished run.

    Returns:
        Sentences, joined; None where nothing is odd.
    """
    window, sentences = describe_crowded_window(run), describe_inert_settings(run.rules)
    return " ".join([window, *sentences] if window else sentences) or None


def describe_crowded_window(run: RulesRun) -> str | None:
    """Return a note where the fixed part of the prompt alone fills the rules' window, else None."""
    fixed, budget = run.log.fixed, run.budget
    if fixed < budget.prompt_limit:
        return None
    reserve = f", {budget.reserve:,} of them held free" if budget.reserve else ""
    return (
        f"The fixed part of the prompt ({fixed:,} tokens) does not fit into the window that these"
        f" rules go by ({budget.limit:,} tokens{reserve}), so no compaction makes a prompt fit."
    )


def compute_shared_tokens(run: RulesRun) -> NDArray[Any]:
    """Return for each call the tokens shared with the prompt before, even where not cached.

    Args:
        run: a finished run.

    Returns:
        An array with one value a call, in tokens; 0 for the first call.
    """
    prompts, fresh = run.prompts, run.fresh_tokens
    shared, fixed = np.asarray(prompts - fresh), run.log.fixed_at
    for call in run.clock.calls:
        if run.begin < call < run.call:
            # what no message holds may shrink between two calls
            before = int(prompts[call - 1]) - max(fixed[call - 1] - fixed[call], 0)
            in_common = run.shared_when_cold.get(call, max(before, 0))
            shared[call] = min(in_common, int(prompts[call]))
    return shared


def count_hidden_messages_and_results(run: RulesRun) -> tuple[int, int]:
    """Return how many messages the next call would not see unchanged, and how many of these are
    tool results.

    Args:
        run: a finished run.

    Returns:
        (messages, tool results among them).
    """
    # without a pruning, the next call sees the edits in force
    view, log = run.coming() if run.prunes else run.history, run.log
    unchanged = view.head.unchanged_rows()
    results = sum([log.roles[row] == TOOL for row in unchanged])
    return view.lo - len(unchanged), log.counts[TOOL][view.lo] - results


def _modelled_reply(
    message: Message, prompt: int, fresh: int | None, shared: int, *, billed: bool
) -> Message:
    """Return a reply with the usage of the modelled prompt; output as recorded, no cost.

    Where the record bills its calls but not this one (it failed), the reply stays without usage,
    and the modelled prompt is in its details.
    """
    details = {k: v for k, v in message.details.items() if k not in _DETAILS_OF_RECORD}
    details |= {"usage_source": "derived", "shared_tokens": shared}
    if billed and message.usage is None:
        return _replace(message, details=details | {"prompt_tokens": prompt})
    recorded = message.usage or Usage()
    usage = Usage(
        input_tokens=prompt if fresh is None else fresh,
        cache_read_tokens=None if fresh is None else prompt - fresh,
        output_tokens=recorded.output_tokens,
        reasoning_tokens=recorded.reasoning_tokens,
    )
    return _replace(message, usage=usage, details=details)
