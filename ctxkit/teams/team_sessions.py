"""The sessions of a team's agents, each opened when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from threading import RLock
from typing import TYPE_CHECKING

from ctxkit.agent.live_session import LiveSession
from ctxkit.teams.members import SubAgent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit.teams.members import EventSink
    from ctxkit.teams.plan import Member

    Open = Callable[[Member, SubAgent | None], LiveSession]
    OpenSub = Callable[[Member, LiveSession], LiveSession]


class TeamSessions(Mapping[str, LiveSession]):
    """Live sessions by an agent's name.

    Opening one makes five files and takes some milliseconds. An agent that is never asked has none.

    Args:
        members: the agents.
        open_session: opens the session of an agent, which may ask another.
        open_sub: opens the session of the agent that it asks.
        tell: is told what that one does.
    """

    def __init__(
        self, members: Sequence[Member], open_session: Open, open_sub: OpenSub, tell: EventSink
    ) -> None:
        self._members = {m.name: m for m in members}
        self._open, self._open_sub, self._tell = open_session, open_sub, tell
        self._lock = RLock()
        """One thread works, and another may read."""
        self._hooks: list[Callable[[LiveSession], None]] = []
        self.opened: dict[str, LiveSession] = {}
        """Those that are open, in the order of their opening."""
        self.subs: dict[str, LiveSession] = {}
        """The sessions of agents that others ask, by the name of the one who asks."""
        self._closing, self._closed = ExitStack(), False

    def __getitem__(self, name: str) -> LiveSession:
        with self._lock:
            if name not in self.opened and not self._closed:
                self._add(self._members[name])
            return self.opened[name]

    def __contains__(self, name: object) -> bool:
        return name in (self.opened if self._closed else self._members)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._members if name in self)

    def __len__(self) -> int:
        return len(self.opened if self._closed else self._members)

    def each(self, do: Callable[[LiveSession], None]) -> None:
        """Do something with each session that is open, and with each as it is opened."""
        with self._lock:
            self._hooks.append(do)
            for live in (*self.opened.values(), *self.subs.values()):
                do(live)

    def close(self) -> None:
        """Give all that are open free; no other one is opened after that."""
        with self._lock:
            self._closed = True
            self._closing.close()

    def _add(self, member: Member) -> None:
        with ExitStack() as undo:
            sub = SubAgent(member.name, self._tell) if member.sub is not None else None
            live = self._open(member, sub)
            undo.callback(live.close)
            new = [live]
            if sub is not None:
                sub.live = self._open_sub(member, live)
                undo.callback(sub.live.close)
                self.subs[member.name] = sub.live
                new.append(sub.live)
            self.opened[member.name] = live
            self._closing.push(undo.pop_all())
        for each in new:
            for do in self._hooks:
                do(each)
