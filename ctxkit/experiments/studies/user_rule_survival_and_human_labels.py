"""Survival of the user's rules in replays, and agreement of marks with people's labels."""

from __future__ import annotations

import ast
import json
import random
from inspect import signature
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments
from ctxkit.experiments.studies.published_runs_and_tables import find_published_file
from ctxkit.metrics.user_rule_loss_and_breaches import trace_user_rules
from ctxkit.session.messages import Edit, Message, Text, ToolCall
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from ctxkit.policies.compaction_and_pruning_rules import Rules


__all__ = [
    "COMPINT",
    "HELD_OUT_WORDINGS",
    "TUNED_WORDINGS",
    "HumanLabelAgreement",
    "JudgedSummary",
    "UserRuleConversation",
    "compare_marks_with_human_labels",
    "compare_survival_with_keep_rules",
    "make_constraint_conversations",
    "make_user_rule_conversations",
    "read_constraints",
    "read_judged_summaries",
]
__dir__ = make_dunder_dir(__all__)


TUNED_WORDINGS = (
    "Never touch the {key} database.",
    "From now on write every log line in the style of {key}.",
    "do not push anything to {key}",
    "Use version {key} of the driver, the newer one breaks us.",
    "Please keep all amounts in cents; the field is {key}.",
    "Antworte mir bitte immer auf Deutsch, auch in {key}.",
    "The budget for {key} is 40 dollars at most.",
    "Only Petra may approve releases of {key}.",
    "Make sure {key} stays readable by the old importer.",
    "Leave {key} as it is, the auditors look at it.",
    "You must run the {key} suite before you say done.",
    "I prefer small commits, one for each {key} step.",
    "One thing that matters to me: hands off {key}, it belongs to another team.",
    "We stay on {key} for the whole quarter, no upgrades.",
    "Nothing goes out to {key} unless I have said yes.",
    "Stick with the {key} naming in everything you create.",
    "If you need credentials, take those of {key} and no others.",
    "Tests of {key} are slow; don't run them more than once a day.",
    "Our customer insists on {key} as the date format.",
    "Whatever you do, {key} has to stay below 200 ms.",
    "Deploy to {key} exclusively.",
    "Fass {key} auf keinen Fall an.",
    "When in doubt about {key}, ask me first.",
    "Comments in {key} are to be written in British English.",
    "I don't want any new dependency in {key}.",
    "{key} is read-only for you.",
    "Our ticket is {key}; put it in every commit message.",
    "The port of the proxy is {key}, all calls go through it.",
    "No emoji, no exclamation marks in {key}.",
    "Keep {key} out of the release notes.",
    "Mind that {key} is shared with finance, so treat it as frozen.",
    "Whoever changes {key} tells me beforehand, you included.",
    "Format dates as {key} everywhere.",
    "Our limit for {key} is 12 requests a second.",
    "The contract says that {key} must not leave the EU.",
    "Please answer in French when it is about {key}.",
    "I decide alone when {key} is switched on.",
    "Try to avoid long functions in {key}.",
    "Don't even think of deleting {key}.",
    "All new files go below {key}.",
    "We can't afford more than 3 workers in {key}.",
    "Use tabs, not spaces, in {key}.",
    "For {key}, correctness comes before speed, always.",
    "The API key lives in {key}; keep it there.",
    "Bitte nichts an {key} verschicken, bevor ich es gelesen habe.",
    "Speak to the customer as {key}, formally.",
    "If a test of {key} fails, stop and report.",
    "Skip {key} when you refactor.",
    "Ne modifie jamais {key}.",
    "The oldest Python that {key} supports is 3.9.",
)
"""Wordings on which the extractor was written."""
HELD_OUT_WORDINGS = (
    "Legal signed off on {key} alone, so that is the text we ship.",
    "My boss reads {key} every morning; it may not look broken.",
    "Amounts in {key} are cents.",
    "Customers in {key} see old prices until May, do not correct those.",
    "The style guide of {key} applies to all that you write.",
    "Treat {key} as production.",
    "Backups of {key} come first, migrations second.",
    "Schreib Commits auf Englisch, aber {key} bleibt deutsch.",
    "We pay for {key} by the call, so be sparing with it.",
    "Anything under {key} needs a second pair of eyes before it is merged.",
    "The name is {key}, with a capital letter, in every text.",
    "Rollbacks go through {key}.",
    "I told the auditors that {key} is encrypted at rest, and it had better stay so.",
    "Two spaces of indentation in {key}, like everywhere.",
    "{key} runs on Node 18 and will for another year.",
    "Send nothing to {key} on a Friday.",
    "Pas de nouvelles bibliothèques dans {key}.",
    "Secrets belong into {key}, not into the repository.",
    "Prefer deleting code over adding flags to {key}.",
    "The mobile team depends on {key}: its fields are set in stone.",
)
"""Wordings on which the extractor is measured; it was not written on them."""
_REQUESTS = (
    "Now look at the {noun} module and tell me what it does.",
    "The {noun} job failed last night, find out why.",
    "Can you make the {noun} page load faster?",
    "Add a column for the {noun} to the export.",
    "Go on with the {noun} part.",
)
_REMARKS = (
    "I saw the same in the {noun} module last week.",
    "It looked odd on my screen this morning.",
    "The {noun} team is on holiday.",
    "My colleague wrote that {noun} code years ago.",
    "Last time it took two hours.",
)
"""User sentences that are neither rules nor requests."""
_NOUNS = ("invoice", "customer", "search", "report", "mail", "stock", "payment", "import", "audit")
_WORDS = (
    *("handler", "returns", "value", "of", "cache", "entry", "row", "index", "parse", "item"),
    *(
        "config",
        "client",
        "request",
        "server",
        "batch",
        "total",
        "amount",
        "field",
        "update",
        "query",
    ),
    *("filter", "page", "result", "array", "string", "number", "date", "user", "file", "path"),
)
RULES_PER_CONVERSATION = 15
_TURNS = 60


# A simulated conversation is work on an invented project: the user asks, the agent reads files and
# runs commands, and among the requests the user states rules, each with a word that occurs nowhere
# else. A rule survives if the last prompt has that word. Wordings of rules are left out whole: the
# extractor was written against `TUNED_WORDINGS` and is measured on `HELD_OUT_WORDINGS`.
class UserRuleConversation(NamedTuple):
    """A constructed conversation, and the rules that the user states in it."""

    session: Session
    keys: tuple[str, ...]


def make_user_rule_conversations(
    n: int = 10,
    seed: int = 0,
    wordings: tuple[str, ...] = HELD_OUT_WORDINGS,
    stated_within: int = 40,
) -> list[UserRuleConversation]:
    """Make talks of 60 turns in which the user states 15 rules in the first 40.

    Args:
        n: number of talks.
        seed: seed of all that is random in them.
        wordings: wordings of the rules, with `{key}` for the word that occurs nowhere else; a
            wording without it is its own key.
        stated_within: turns among which the rules are stated, 15 or more.

    Returns:
        The talks; the same seed gives the same ones.

    Example:
        >>> talk, = make_user_rule_conversations(1)
        >>> len(talk.keys), len(talk.session.calls)
        (15, 120)
    """
    talks = []
    for i in range(n):
        rng = random.Random(f"{seed}-{i}")  # noqa: S311  no secret
        talks.append(_make_conversation(rng, f"talk-{seed}-{i}", wordings, stated_within))
    return talks


def _make_conversation(
    rng: random.Random, name: str, wordings: tuple[str, ...], stated_within: int
) -> UserRuleConversation:
    words = tuple(
        f"{rng.choice(_WORDS)}-{rng.randrange(10**4):04d}x{i}"
        for i in range(RULES_PER_CONVERSATION)
    )
    stated_in = {
        turn: k for k, turn in enumerate(rng.sample(range(stated_within), RULES_PER_CONVERSATION))
    }
    chosen = [wordings[i % len(wordings)] for i in range(RULES_PER_CONVERSATION)]
    rng.shuffle(chosen)
    keys = tuple(k if "{key}" in w else w for k, w in zip(words, chosen, strict=True))
    messages: list[Message] = [Message(role="system", id="s", parts=(Text("You mend software."),))]
    for turn in range(_TURNS):
        request = rng.choice(_REQUESTS).format(noun=rng.choice(_NOUNS))
        if rng.random() < 0.5:
            request = f"{rng.choice(_REMARKS).format(noun=rng.choice(_NOUNS))} {request}"
        if turn in stated_in:
            k = stated_in[turn]
            rule = chosen[k].replace("{key}", words[k])
            request = rng.choice((f"{request} {rule}", f"{rule}\n{request}"))
        messages += _make_turn(rng, turn, request)
    session = Session(id=name, log=tuple(messages), model="claude-sonnet-4-5")
    return UserRuleConversation(session, keys)


def _make_turn(rng: random.Random, turn: int, request: str) -> list[Message]:
    path = f"src/{rng.choice(_NOUNS)}/{rng.choice(_WORDS)}.py"
    call = ToolCall(id=f"c{turn}", name="read_file", arguments={"path": path})
    lines = [" ".join(rng.choices(_WORDS, k=9)) for _ in range(rng.randrange(60, 180))]
    reply = f"I read {path}: the {rng.choice(_WORDS)} {' '.join(rng.choices(_WORDS, k=30))}."
    return [
        Message(role="user", id=f"u{turn}", parts=(Text(request),)),
        Message(role="assistant", id=f"a{turn}", parts=(Text("I read the file."), call)),
        Message(
            role="tool",
            id=f"r{turn}",
            parts=(Text("\n".join(lines)),),
            call_id=call.id,
            tool=call.name,
        ),
        Message(role="assistant", id=f"b{turn}", parts=(Text(reply),)),
    ]


_SURVIVAL_COLUMNS = [
    "rules",
    "compactions_n",
    "kept_extract",
    "with_extract",
    "kept_empty",
    "with_empty",
    "lowest_with",
    "more_tokens",
]


def compare_survival_with_keep_rules(
    talks: list[UserRuleConversation],
    names: list[str] | None = None,
    window: int = 64_000,
    tokens: int = 400,
) -> pd.DataFrame:
    """Replay talks under presets with and without `keep_rules`, and count the rules kept.

    Each preset runs twice: with the summary of extracts that replays write by default, and with a
    summary that repeats nothing of the user, the least that a model's summary can keep.

    Args:
        talks: made by `make_user_rule_conversations`.
        names: presets; None: all that take the size of the window.
        window: tokens of the context window.
        tokens: most tokens of the rules that are carried on.

    Returns:
        One row per preset that removed messages of the user, which may be none: `rules`,
        `compactions_n` (mean of a talk), `kept_extract` and `kept_empty` (shares of all rules that
        the last prompt holds, by the summary), `with_extract` and `with_empty` (the same with
        `keep_rules`), `lowest_with` (of the worst talk with `keep_rules`), `more_tokens` (the
        largest relative change of all prompt tokens, of both summaries).
    """
    import pandas as pd

    every = (_measure_preset(name, talks, window, tokens) for name in names or _list_presets())
    rows = [row for row in every if row is not None]
    frame = pd.DataFrame(rows, columns=_SURVIVAL_COLUMNS)
    order = ["kept_empty", "kept_extract"]
    return frame.sort_values(order, ignore_index=True, kind="stable")


def _list_presets() -> list[str]:
    from ctxkit.presets import registry_and_setting_checks

    return [n for n in registry_and_setting_checks.names() if _get_window_setting(n)]


def _get_window_setting(name: str) -> str | None:
    from ctxkit import presets

    settings = signature(getattr(presets, name)).parameters
    return next((s for s in ("context_window", "window") if s in settings), None)


def _write_empty_summary(_passage: Any) -> str:
    return "The work went on as asked; the files were read and the changes made."


def _measure_preset(
    name: str, talks: list[UserRuleConversation], window: int, tokens: int
) -> dict[str, Any] | None:
    from ctxkit.policies.rules_modifiers import keep_rules
    from ctxkit.presets.registry_and_setting_checks import preset

    try:
        plain = preset(name, **{str(_get_window_setting(name)): window})
        keep_rules(plain)
    except BadArguments:  # the preset does not work in such a window, or compacts nothing
        return None
    by_summary = {"extract": plain, "empty": plain.but(summariser=_write_empty_summary)}
    row: dict[str, Any] = {"rules": name}
    lowest, more = [], []
    for word, rules in by_summary.items():
        without = [_replay_conversation(t, rules) for t in talks]
        if not any(o.removed for o in without):
            return None
        carried = [_replay_conversation(t, keep_rules(rules, tokens)) for t in talks]
        row.setdefault("compactions_n", sum(o.compactions_n for o in without) / len(talks))
        row[f"kept_{word}"] = sum(o.retained_share for o in without) / len(talks)
        row[f"with_{word}"] = sum(o.retained_share for o in carried) / len(talks)
        lowest.append(min(o.retained_share for o in carried))
        more.append(sum(o.tokens for o in carried) / sum(o.tokens for o in without) - 1)
    return {**row, "lowest_with": min(lowest), "more_tokens": max(more)}


class _Outcome(NamedTuple):
    compactions_n: int
    retained_share: float
    removed: bool
    """True where a message of the user left the prompt."""
    tokens: int
    """Of all prompts."""


def _replay_conversation(talk: UserRuleConversation, rules: Rules) -> _Outcome:
    from ctxkit.engine.replay import run_replay

    run = run_replay(talk.session, rules)
    view = [item.message for item in run.sent(len(talk.session.calls) - 1)]
    text, ids = "\n".join(m.text for m in view), {m.id for m in view}
    return _Outcome(
        compactions_n=len(run.segments()) - 1,
        retained_share=sum(key in text for key in talk.keys) / len(talk.keys),
        removed=any(m.role == "user" and m.id not in ids for m in talk.session.messages),
        tokens=int(run.prompts.sum()),
    )


COMPINT = "compint"
"""Folder with `sssc.py`, `balanced_blind_labeled.jsonl` and `balanced_key.jsonl` of
ZhiqiEliWang/compaction-integrity, commit 5485922, MIT."""
PUBLISHED_RETENTION = {
    "gpt_5.4_mini_pi_mono_prompt": (88.4, 98.0, 6.7),
    "gpt_5.4_mini_anthropic_prompt": (53.7, 26.0, 28.3),
    "gpt_oss_120b_pi_mono_prompt": (36.3, 19.6, 0.0),
    "gpt_oss_120b_anthropic_prompt": (18.5, 8.4, 1.3),
    "gemma_4_anthropic_prompt": (12.5, 3.6, 2.0),
    "qwen30b_anthropic_prompt": (2.1, 1.1, 3.3),
    "recent_5": (0.4, 0.0, 0.0),
    "llmlingua2_t500": (0.0, 0.0, 0.0),
}
"""Per cent of constraints that the paper found kept, in its three kinds of talks."""
FRAMING = "For the rest of this session. "
"""The words before a constraint in the main runs of the paper."""


# The published summaries are those of COMPINT (arXiv 2608.11242, MIT): 15 constraints and 50
# summaries that models wrote, each with a person's word whether it still says the constraint. The
# conversations of 100,000 tokens that were summarised are not at hand, so constraints are put into
# simulated ones.
class JudgedSummary(NamedTuple):
    """A published summary of a conversation in which the user stated a constraint."""

    compactor: str
    """The model and its prompt."""
    constraint: str
    summary: str
    is_kept: bool
    """The judgement of the person who read the summary."""


class HumanLabelAgreement(NamedTuple):
    """Agreement of the marks of `user_rules` with human labels of the same summaries."""

    retained_n: int
    """Summaries that keep the constraint, by a person."""
    marked_retained_n: int
    """Of them, those that are marked so."""
    lost_n: int
    """Summaries that do not."""
    marked_lost_n: int
    """Of them, those that are marked so."""
    order_correlation: float
    """Of the compactors' shares of summaries marked as keeping it with `PUBLISHED_RETENTION`
    (Spearman)."""
    compactors_n: int


def read_constraints(root: Path | None = None) -> list[str]:
    """Return the published constraints as the user states them, without framing.

    Args:
        root: the folder of published data; None: as
        `published_runs_and_tables.find_published_file`.

    Raises:
        BadArguments: the data are not there, or not of the form that is known.
    """
    text = (find_published_file(COMPINT, root) / "sssc.py").read_text(encoding="utf-8")
    for node in ast.parse(text).body:  # read, and not run
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
            rows = ast.literal_eval(node.value)
            if rows and all("sssc" in row for row in rows):
                return [str(row["sssc"]) for row in rows]
    raise BadArguments(f"{COMPINT}/sssc.py has no list of constraints: take commit 5485922.")


def read_judged_summaries(root: Path | None = None) -> list[JudgedSummary]:
    """Return the published summaries with a person's label; see `read_constraints`."""
    folder = find_published_file(COMPINT, root)
    labelled, key = (
        [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        for name in ("balanced_blind_labeled.jsonl", "balanced_key.jsonl")
    )
    compactors = {row["id"]: str(row["compactor"]) for row in key}
    return [
        JudgedSummary(
            compactors[row["id"]],
            str(row["sssc_message"]),
            str(row["compacted_summary"]),
            bool(row["label"]),
        )
        for row in labelled
    ]


def make_constraint_conversations(
    n: int, root: Path | None = None, seed: int = 0
) -> list[UserRuleConversation]:
    """Make talks whose user states the published constraints in the first turns, with framing.

    Args:
        n: number of talks; each states all of them.
        root: see `read_constraints`.
        seed: seed of all that is random in the talks.

    Returns:
        The talks, each with the words by which its rules are recognised in a summary.

    Raises:
        BadArguments: the published file has another number of constraints than a talk has rules.
    """
    wordings = tuple(read_constraints(root))
    if len(wordings) != RULES_PER_CONVERSATION:
        raise BadArguments(
            f"{COMPINT} has {len(wordings)} constraints, not {RULES_PER_CONVERSATION}."
        )
    talks = make_user_rule_conversations(
        n, seed, tuple(FRAMING + w for w in wordings), stated_within=RULES_PER_CONVERSATION
    )
    # the framing is a sentence of its own, which nothing needs to keep
    keys = [tuple(k.removeprefix(FRAMING) for k in talk.keys) for talk in talks]
    return [talk._replace(keys=key) for talk, key in zip(talks, keys, strict=True)]


def compare_marks_with_human_labels(summaries: Sequence[JudgedSummary]) -> HumanLabelAgreement:
    """Compare the marks of `user_rules` with human labels of the same summaries."""
    pairs = [(s.compactor, s.is_kept, _states_constraint(s)) for s in summaries]
    kept = [mark for _, is_kept, mark in pairs if is_kept]
    lost = [not mark for _, is_kept, mark in pairs if not is_kept]
    groups = {c: list(g) for c, g in groupby(sorted(pairs), key=lambda pair: pair[0])}
    published = [fmean(PUBLISHED_RETENTION[name]) for name in groups]
    marked = [fmean(pair[2] for pair in group) for group in groups.values()]
    return HumanLabelAgreement(
        len(kept), sum(kept), len(lost), sum(lost), _spearman(published, marked), len(groups)
    )


def _states_constraint(judged: JudgedSummary) -> bool:
    """Return whether the rule is in sight of a prompt that holds the summary alone."""
    stated = Message(role="user", id="u0", parts=(Text(FRAMING + judged.constraint),))
    reply = Message(role="assistant", id="a0", parts=(Text("Yes."),))
    summary = Message(role="summary", id="s0", parts=(Text(judged.summary),))
    edit = Edit(kind="summarised", id="e0", targets=("u0", "a0"), inserted=(summary,))
    later = (
        Message(role="user", id="u1", parts=(Text("Go on."),)),
        Message(role="assistant", id="a1", parts=(Text("Done."),)),
    )
    fates = trace_user_rules(Session(id="judged", log=(stated, reply, edit, *later))).fates
    return any(fate.in_sight for fate in fates if judged.constraint.startswith(fate.rule))


def _spearman(first: Sequence[float], second: Sequence[float]) -> float:
    import pandas as pd

    return float(pd.Series(first).rank().corr(pd.Series(second).rank()))
