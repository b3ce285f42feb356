"""Exercises of notebook 04: a live session in which a loss has a cost."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ctxkit.agent.models.scripted_and_lookup_models import find_ports
from ctxkit.course.exercises import exercise, guess, mark_list, mark_number, numbers, score_guess
from ctxkit.errors import BadArguments
from ctxkit.session.session import Session

if TYPE_CHECKING:
    import pandas as pd

_MASKS = (2, 20, 8, 10, 3)
"""Results that a mask shows; the guess is about the first."""


def ports_in_sight(session: Session) -> dict[str, int]:
    """Return the ports that the messages of a session show: by the name of the service.

    Args:
        session: session of the agent of notebook 04; the answer of a turn has it as it was then.

    Returns:
        Port by service, only of services whose port the current prompt shows.

    Example:
        >>> import ctxkit as ck
        >>> ports_in_sight(ck.read(ck.samples.path("chat")))
        {}
    """
    return dict(find_ports(session.view()))


@cache
def run_agents_under_masks(*masks: int) -> pd.DataFrame:
    """Return what an agent did and paid, unmanaged and under masks, in the world of the studies."""
    from ctxkit import presets
    from ctxkit.experiments import studies

    rules = [presets.swe_agent_mask(n=n).but(name=f"mask {n}") for n in masks]
    table: pd.DataFrame = studies.loop(["none", *rules], progress=False)
    return table


@guess(
    "04",
    "An agent answers sixty questions about numbers in files; never compacted it reads 24 files, "
    "each once. Now it is shown its last two results alone. How many times does it read again?",
    "What is out of sight is looked up again, and a look is a call.",
)
def _guess_repeated_reads(answer: Any) -> str:
    return score_guess(
        answer, int(run_agents_under_masks(_MASKS[0])["rereads_n"].iloc[-1]), "times"
    )


@exercise(
    "04-a",
    "Which services' ports did your agent not see any more when this turn was over, though it had "
    "read them? A list of names; give the session of the turn, too.",
    "Ask for one of them and watch what it does.",
    hint="It sees what the last turn before the compaction read, and what it has read since.",
)
def _judge_hidden_ports(answer: Any, session: Any = None) -> str:
    if not isinstance(session, Session):
        raise BadArguments("Give the session, too: ck.check('04-a', [...], answer.session).")
    ever = find_ports(session.messages)
    # what the messages of that session show: its later runs, where it was restored and compacted
    # again, are other sessions
    ports = ports_in_sight(session)
    return mark_list(answer, sorted(set(ever) - set(ports)))


@exercise(
    "04-b",
    "By how many per cent is `mask {mask}` dearer, as the agent really paid, than the replay "
    "predicted?",
    "Of the settings of the table none is cheaper, as really paid, than no management at all: a "
    "replay does not know that the agent looks again.",
    hint="`usd_real` over `usd_predicted`, less one, times 100.",
    numbers=[{"mask": n} for n in _MASKS],
)
def _judge_underestimate(answer: Any) -> str:
    table = run_agents_under_masks(numbers("04-b")["mask"])
    predicted, real = (float(table[name].iloc[-1]) for name in ("usd_predicted", "usd_real"))
    slips = {
        "That is the whole of what was paid, over what was predicted; take 100 % off it.": (
            100 * real / predicted
        ),
        "That is a share of what was really paid, not of what was predicted.": (
            100 * (1 - predicted / real)
        ),
        "You compared with `none`; the prediction for the same mask is asked for.": (
            100 * (real / float(table["usd_real"].iloc[0]) - 1)
        ),
    }
    return mark_number(answer, 100 * (real / predicted - 1), tolerance=0.02, common_mistakes=slips)
