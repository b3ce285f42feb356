"""What a declared context would have put before each turn of a recorded team's agents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from ctxkit.heard.heard_words import ARTIFACTS
from ctxkit.messages import Message, Text
from ctxkit.subjects import results
from ctxkit.teams.deeds import Deed, changed
from ctxkit.teams.handoffs import Shelf, artifacts
from ctxkit.teams.past_files import PastFiles
from ctxkit.teams.rosters import Roster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.heard import AgentLog, TeamTurn
    from ctxkit.session import Session
    from ctxkit.teams.rosters import ContextSource


def with_blocks(
    logs: Sequence[AgentLog], turns: Sequence[TeamTurn], declared: Sequence[ContextSource]
) -> list[AgentLog]:
    """Return the agents' logs with the block of a declared context before each turn's prompt.

    Files are known as far as calls of the record wrote them; what was there before is missing.
    """
    by_name = {log.agent: log for log in logs}
    folder = next((log.record.cwd for log in logs if log.record.cwd), "") or ""
    files, deeds = PastFiles(folder), list[Deed]()
    placed: dict[str, dict[int, str]] = {name: {} for name in by_name}
    for number, turn in enumerate(turns):
        if turn.agent not in by_name or not turn.calls:
            continue
        shelf = Shelf(root=files, brief=Roster.brief, changes=tuple(deeds))
        placed[turn.agent][turn.calls[0]] = artifacts(shelf, declared)
        said = _said(by_name[turn.agent].record, turn.calls)
        files.take(said)
        deed = changed(number, turn.agent, said)
        deeds += [deed] if deed is not None else []
    return [_with(log, placed[log.agent]) for log in logs]


def _said(session: Session, calls: Sequence[int]) -> list[Message]:
    """Return the replies of some calls, and what their tools answered."""
    replies = [session.calls[c].message for c in calls]
    found = results(session.messages)
    told = (found.get(id(c)) for m in replies for c in m.tool_calls)
    kept = {id(m) for m in (*replies, *told)}
    return [m for m in session.messages if id(m) in kept]


def _with(log: AgentLog, blocks: dict[int, str]) -> AgentLog:
    """Put blocks before the prompts of the calls that they belong to, where there is one."""
    out: list[Message] = []
    call, prompt = 0, -1
    for m in log.shared.messages:
        if m.role == "assistant":
            if blocks.get(call) and prompt >= 0:
                block = Message(role="user", kind=ARTIFACTS, parts=(Text(blocks[call]),),
                                id=f"block{call}", turn=m.turn)  # fmt: skip
                out.insert(prompt, block)
            call, prompt = call + 1, -1
        elif m.role == "user" and not m.kind:
            prompt = len(out)
        out.append(m)
    return replace(log, shared=msgspec.structs.replace(log.shared, log=tuple(out)))
