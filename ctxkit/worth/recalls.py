"""What a memory would have been worth: what it would have saved of what was lost, and what it
costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.frames.frame_columns import FLOAT, INT, TEXT, FrameColumn, build
from ctxkit.garbage import without_collection
from ctxkit.messages import RECALLED
from ctxkit.policies.chain import in_a_row
from ctxkit.policies.recall import Recall, promoted
from ctxkit.policies.recorded import AsRecorded
from ctxkit.presets.naming import as_rules
from ctxkit.readers.given import of_session
from ctxkit.sweeps.batches import Bench
from ctxkit.sweeps.scores import run_row

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.engine import Run
    from ctxkit.presets.naming import AnyRules
    from ctxkit.session import Session

COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn("way", TEXT, "", "without memory, with it, or how much more that is"),
    FrameColumn("cuts_n", INT, "compactions", "that were made"),
    FrameColumn("promoted_n", INT, "entries", "that memory holds at the end"),
    FrameColumn("recalled_tokens", INT, "tokens", "of the digests, each as often as it was sent"),
    FrameColumn("prompt_tokens", INT, "tokens", "of the prompts of all calls"),
    FrameColumn("needed_lost_n", INT, "items", "that were needed later and in sight no more"),
    FrameColumn(
        "needed_later_loss", FLOAT, "share", "of the items used again, those that were lost"
    ),
    FrameColumn(
        "rules_kept", FLOAT, "share", "of the user's rules that were taken, those in sight"
    ),
    FrameColumn("usd", FLOAT, "US dollars", "by the one bill; missing where no price is known"),
    FrameColumn("source", TEXT, "", "derived from recorded usage, or estimated"),
)
WITHOUT, WITH, MORE = "without memory", "with memory", "difference"
_DIFFER = ("cuts_n", "recalled_tokens", "prompt_tokens", "needed_lost_n", "needed_later_loss",
           "rules_kept", "usd")  # fmt: skip


@of_session
def with_memory(
    session: Session, rules: AnyRules = "pi", recall: Recall | None = None
) -> pd.DataFrame:
    """Return what a session's compactions lose without and with a memory, and what that costs.

    With memory, the same rules promote what they take out and recall a digest of it behind the
    summary (`policies.recall`); found without a model, so that promoting costs nothing. The bill
    holds the digest at every call that is sent it, cache included. Needed-later loss says what was
    named again by the record (`metrics.forgotten`): an opportunity for loss, not what an agent
    would have done.

    Args:
        session: any session, the path of a log, or a list of messages.
        rules: rules, a preset, or words for a policy, without a memory of their own.
        recall: how much is recalled; None: Tyrum's budgets.

    Raises:
        BadArguments: the rules compact nothing of their own, or recall already.
    """
    plain = as_rules(rules)
    if isinstance(plain.policy, AsRecorded) or plain.bare is None:
        raise BadArguments(
            'Memory recalls what rules take out: name rules that compact, such as "pi".'
        )
    if any(isinstance(part, Recall) for part in in_a_row(plain.bare)):
        raise BadArguments("These rules recall already: name them without it.")
    bench, told = Bench(session), []
    with without_collection():
        for way, each in ((WITHOUT, plain), (WITH, plain | (recall or Recall()))):
            done = bench.run(each)
            told.append(_row(session, way, done, run_row(bench.base, done, way, loss=True)))
    more = {"session": session.id, "way": MORE, "source": told[0]["source"]}
    more |= {c: _less(told[1][c], told[0][c]) for c in _DIFFER}
    rows = [*told, more]
    return build(COLUMNS, {c.name: [row.get(c.name) for row in rows] for c in COLUMNS})


def _row(session: Session, way: str, done: Run, scored: dict[str, Any]) -> dict[str, Any]:
    recalls = way == WITH
    gone = promoted(done.coming()) if recalls and done.cuts else []
    return {
        "session": session.id,
        "way": way,
        "cuts_n": len(done.cuts),
        "promoted_n": len(gone) if recalls else None,
        "recalled_tokens": _recalled(done) if recalls else 0,
        "prompt_tokens": done.total,
        "needed_lost_n": scored.get("needed_lost_n"),
        "needed_later_loss": scored.get("needed_later_loss"),
        "rules_kept": scored.get("rules_kept"),
        "usd": scored.get("cost_usd"),
        "source": scored["source"],
    }


def _recalled(done: Run) -> int:
    """Return the tokens of the digests, over all calls."""
    total, size, cuts = 0, 0, {cut.call: cut.new for cut in done.cuts}
    for call in range(done.log.calls):
        if call in cuts:
            view = cuts[call]
            held = (p for p in range(view.head.size) if view[p].kind == RECALLED)
            size = sum(int(view.item(p).tokens) for p in held)
        total += size
    return total


def _less(more: Any, less: Any) -> Any:
    return None if more is None or less is None else more - less
