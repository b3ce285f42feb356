"""Notebook 04: a live session, in which a loss costs something."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ctxkit.agent.models.scripted import find_ports
from ctxkit.course.exercises import exercise, guess
from ctxkit.course.marking import mark_choice, mark_list, score_guess
from ctxkit.errors import BadArguments
from ctxkit.session.session import Session

if TYPE_CHECKING:
    import pandas as pd

_MASK = 2
WORDS = ("none", "mask 2", "mask 20")


def ports_in_sight(session: Session) -> dict[str, int]:
    """Return the ports that the messages of a session show: by the name of the service.

    Args:
        session: of the agent of notebook 04; the answer of a turn has it as it was then.

    Example:
        >>> import ctxkit as ck
        >>> ports_in_sight(ck.read(ck.samples.path("chat")))
        {}
    """
    return dict(find_ports(session.view()))


@cache
def lived() -> pd.DataFrame:
    """Return what an agent did and paid under three settings, in the world of the studies."""
    from ctxkit import presets
    from ctxkit.experiments import studies

    masks = [presets.swe_agent_mask(n=n).but(name=f"mask {n}") for n in (_MASK, 20)]
    table: pd.DataFrame = studies.loop(["none", *masks], progress=False)
    return table


@guess(
    "04",
    "An agent answers sixty questions about numbers in files; never compacted it reads 24 files, "
    "each once. Now it is shown its last two results alone. How many times does it read again?",
    "What is out of sight is looked up again, and a look is a call.",
)
def _guess_repeated_reads(answer: Any) -> str:
    return score_guess(answer, int(lived()["rereads_n"]["mask 2"]), "times")


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
    "Three settings, by what the agent really paid: which is the cheapest, 'none', 'mask 2' or "
    "'mask 20'?",
    "The replay would have said another one: it does not know that the agent looks again.",
    hint="The column `usd_real` of the table `lived`.",
    is_choice=True,
)
def _judge_cheapest_setting(answer: Any) -> str:
    right = str(lived()["usd_real"].idxmin())
    return mark_choice(
        answer, right, WORDS, dict.fromkeys(WORDS, "In dollars really paid it is not.")
    )
