"""`%%agent`, `%%team` and `%compact` as lines to be completed; none loads what takes its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.magics.line_options import Ask, AskTeam, Compact
from ctxkit.magics.subcommands import Subcommand

if TYPE_CHECKING:
    from ctxkit.magics.kit_state import KitState


def _agent(kit: KitState, asked: Any) -> object:
    from ctxkit.magics.agents import take

    return take(kit, asked, "")


def _compact(kit: KitState, asked: Any) -> object:
    from ctxkit.magics.compacts import do

    return do(kit, asked, "")


def _team(kit: KitState, asked: Any) -> object:
    from ctxkit.magics.crews import work

    return work(kit, asked, "")


AGENT = {"": Subcommand("", "Take a turn of an agent.", Ask, _agent)}
TEAM = {"": Subcommand("", "Let a team of agents work on a task.", AskTeam, _team)}
COMPACT = {"": Subcommand("", "Compact a live session by hand.", Compact, _compact)}
"""One line each, without subcommands: for completion."""
