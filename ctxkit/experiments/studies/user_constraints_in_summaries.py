"""Published constraints of users in long talks, and whether people found them in real summaries.

Source: COMPINT (arXiv 2608.11242, MIT). At hand are its 15 constraints and 50 summaries that models
wrote, each with a person's word whether it still says the constraint. The talks of 100,000 tokens
that were summarised are not, so constraints are put into made talks.
"""

from __future__ import annotations

import ast
import json
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments
from ctxkit.experiments.studies.published_runs import find_published_file
from ctxkit.experiments.studies.rule_survival import (
    RULES_PER_TALK,
    RuleConversation,
    make_rule_conversations,
)
from ctxkit.metrics.user_rule_fates import trace_user_rules
from ctxkit.session.messages import Edit, Message, Text
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


__all__ = [
    "COMPINT",
    "JudgedSummary",
    "RuleMarkAgreement",
    "compare_marks",
    "make_constraint_talks",
    "read_constraints",
    "read_judged_summaries",
]
__dir__ = public_dir(__all__)

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


class JudgedSummary(NamedTuple):
    """A published summary of a talk in which the user had stated a constraint."""

    compactor: str
    """The model and its prompt."""
    constraint: str
    summary: str
    is_kept: bool
    """The judgement of the person who read the summary."""


class RuleMarkAgreement(NamedTuple):
    """Marks of `user_rules` beside what people said of the same summaries."""

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
        root: the folder of published data; None: as `published_runs.find_published_file`.

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


def make_constraint_talks(
    n: int, root: Path | None = None, seed: int = 0
) -> list[RuleConversation]:
    """Make talks whose user states the published constraints in the first turns, with framing.

    Args:
        n: number of talks; each states all of them.
        root: see `read_constraints`.
        seed: of all that is random in the talks.

    Returns:
        The talks, each with the words by which its rules are recognised in a summary.

    Raises:
        BadArguments: the published file has another number of constraints than a talk has rules.
    """
    wordings = tuple(read_constraints(root))
    if len(wordings) != RULES_PER_TALK:
        raise BadArguments(f"{COMPINT} has {len(wordings)} constraints, not {RULES_PER_TALK}.")
    talks = make_rule_conversations(
        n, seed, tuple(FRAMING + w for w in wordings), stated_within=RULES_PER_TALK
    )
    # the framing is a sentence of its own, which nothing needs to keep
    keys = [tuple(k.removeprefix(FRAMING) for k in talk.keys) for talk in talks]
    return [talk._replace(keys=key) for talk, key in zip(talks, keys, strict=True)]


def compare_marks(summaries: Sequence[JudgedSummary]) -> RuleMarkAgreement:
    """Hold the marks of `user_rules` against what people said of the same summaries."""
    pairs = [(s.compactor, s.is_kept, _states_constraint(s)) for s in summaries]
    kept = [mark for _, is_kept, mark in pairs if is_kept]
    lost = [not mark for _, is_kept, mark in pairs if not is_kept]
    groups = {c: list(g) for c, g in groupby(sorted(pairs), key=lambda pair: pair[0])}
    published = [fmean(PUBLISHED_RETENTION[name]) for name in groups]
    marked = [fmean(pair[2] for pair in group) for group in groups.values()]
    return RuleMarkAgreement(
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
