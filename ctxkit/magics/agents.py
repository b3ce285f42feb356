"""`%%agent` and `%agent`: take a turn in a live session, or say how it stands."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.agent.limits import Limits
from ctxkit.agent.threads import Background, run
from ctxkit.errors import BadArguments
from ctxkit.magics.arguments import parse, usage, wants_help
from ctxkit.magics.lines import Ask
from ctxkit.magics.lives import FIRST
from ctxkit.magics.streams import Screen
from ctxkit.magics.texts import Page
from ctxkit.markup import escape, line, plain

if TYPE_CHECKING:
    from ctxkit.agent.live import LiveSession
    from ctxkit.agent.outcome import Outcome
    from ctxkit.magics.kit import CtxKit
    from ctxkit.session import Session

_NAME = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")


class Interrupted(KeyboardInterrupt):
    """The user stopped a turn; it is shown in one line, and the cell counts as interrupted."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@dataclass(frozen=True, repr=False)
class Answer:
    """How a turn ended: `outcome` has the figures, `session` is the session as it stands."""

    outcome: Outcome
    session: Session

    @property
    def text(self) -> str:
        """The last reply."""
        return self.outcome.text

    def __repr__(self) -> str:
        return plain(self.outcome.account())

    def _repr_html_(self) -> str:
        return f"<small>{escape(self.outcome.account())}</small>"


def agent(kit: CtxKit, words: str, body: str | None) -> object:
    """Take a turn; without a prompt, say how the current session stands."""
    if wants_help(words):
        return Page(
            f"{usage(Ask, '%%agent')}\n\nThe cell is the prompt. Without one, `%agent` says how the session stands."
        )
    return take(kit, parse(Ask, words, "%%agent"), body or "")


def take(kit: CtxKit, asked: Ask, body: str) -> object:
    """Take the turn that a line and a cell ask for."""
    prompt = "\n".join(t for t in (asked.prompt.strip(), body.strip()) if t)
    if not prompt:
        return standing(kit, asked.session)
    if asked.expand:
        prompt = expanded(prompt, kit.shell.user_ns)
    name = asked.session or kit.lives.current or FIRST
    if asked.dry_run:
        return dry(kit, name, asked, prompt)
    live = kit.lives.open(name, model=asked.model, summary_model=asked.summary_model, rules=asked.rules,
                          tools=asked.tools, root=asked.root)  # fmt: skip
    live.agent.limits = _limits(asked)
    if live.log.recovered:
        print(live.log.recovered)  # noqa: T201  said once, where the session is opened
        live.log.recovered = None
    if asked.background:
        return background(kit, live, prompt, asked.out)
    return foreground(kit, live, prompt, asked.out)


def foreground(kit: CtxKit, live: LiveSession, prompt: str, out: str | None) -> Answer:
    """Take a turn while the cell waits; an interrupt keeps what was said so far."""
    try:
        with Screen(live, rich=kit.rich):
            outcome = run(live.turn(prompt))
    except KeyboardInterrupt:
        kit.sessions.add(live.session, live.name)
        raise Interrupted(f"Interrupted. What was said so far is kept in session {live.name!r}.") from None
    return _ended(kit, live, outcome, out)


def background(kit: CtxKit, live: LiveSession, prompt: str, out: str | None) -> Handle:
    """Take a turn beside the notebook."""
    screen = Screen(live, rich=kit.rich)

    async def work() -> Answer:
        with screen:
            return _ended(kit, live, await live.turn(prompt), out)

    handle = Handle(live.name, Background(work(), lambda: _keep(kit, live)))
    kit.lives.runs(live.name, handle.running)
    return handle


class Handle:
    """A turn in the background: `state`, `stop()`, `result()`."""

    def __init__(self, name: str, running: Background[Answer]) -> None:
        self.name, self.running = name, running

    @property
    def state(self) -> str:
        """`running`, `stopping`, `stopped`, `failed` or `done`."""
        return self.running.state

    def stop(self) -> None:
        """Stop the turn; what was said so far is kept."""
        self.running.stop()

    def result(self, seconds: float | None = None) -> Answer:
        """Return the answer when it is there.

        Raises:
            TimeoutError: it is not, after so many seconds.
            Interrupted: the turn was stopped.
        """
        try:
            return self.running.result(seconds)
        except asyncio.CancelledError:
            raise Interrupted(f"Stopped. What was said so far is kept in session {self.name!r}.") from None

    def __repr__(self) -> str:
        return f"Turn of session {self.name!r} beside the notebook: {self.state}. `.stop()` ends it, `.result()` waits."

    def _ipython_display_(self) -> None:
        from IPython.display import display
        from ipywidgets import Button, HBox, Label

        button = Button(description="Stop", icon="stop", tooltip=f"Stop the turn of session {self.name}")
        button.on_click(lambda _: self.stop())
        display(HBox([button, Label(repr(self))]))  # type: ignore[no-untyped-call]


def standing(kit: CtxKit, name: str | None) -> Page:
    """Say how a live session stands."""
    live = kit.lives.get(name)
    context, agent_ = live.agent.compactor.context, live.agent
    used, limit = context.tokens, context.run.room.limit
    lines = [
        f"Session {live.name} ({live.id}): {len(live.session.calls)} calls, {len(live.session.edits)} compactions",
        f"Context: {used:,}/{limit:,} tokens ({used / limit:.0%})",
        f"Model: {agent_.model.name}" + (f" ({agent_.model.notice})" if agent_.model.notice else ""),
        f"Rules: {agent_.rules.label} · Limits of a turn: {agent_.limits}",
        f"Tools: {', '.join(agent_.tools)} in {live.root.folder}",
        f"Kept in: {live.log.path}",
    ]
    return Page("\n".join(lines))


def dry(kit: CtxKit, name: str, asked: Ask, prompt: str) -> Page:
    """Show what a turn would send: its messages by role, its size, its cost; nothing is sent or kept."""
    from ctxkit.agent.agent import Agent
    from ctxkit.messages import Message, Text
    from ctxkit.prices import price
    from ctxkit.session import Session

    rules = kit.lives.rules(asked.rules or kit.rules)
    model = kit.lives.model(asked.model or kit.model, rules)
    session = kit.lives.get(name).session if name in kit.lives else kit.kept(name) or Session(id="dry-run")
    stand = Agent(session, model=model, rules=rules, clock=lambda: 0.0)
    stand.compactor.context.add(Message(role="user", id="dry-run", parts=(Text(prompt),)))
    shown, tokens = stand.compactor.context.preview()
    known = price(model.name)
    first = known.at(tokens).cache_write or known.at(tokens).input if known else None
    cost = f"at most ${tokens * first:.4f} for the first prompt" if first else model.notice or "no price known"
    rows = [f"  {n:>3} {role}" for role, n in _by_role(shown).items()]
    due = (
        "a compaction would come first"
        if rules.trigger and tokens > stand.compactor.context.run.room.limit * 0.75
        else ""
    )
    head = f"{tokens:,} tokens in {len(shown)} messages to {model.name}; {cost}. Nothing was sent."
    return Page("\n".join([head, *rows, *([due] if due else []), f"prompt: {line(prompt, 200)}"]))


def expanded(prompt: str, names: dict[str, Any]) -> str:
    """Return a prompt with the values of variables in place of `{{name}}`.

    Raises:
        BadArguments: there is no such variable.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] not in names:
            raise BadArguments(f"There is no variable {match[1]!r} to put in place of {match[0]}.")
        return str(names[match[1]])

    return _NAME.sub(value, prompt)


def _ended(kit: CtxKit, live: LiveSession, outcome: Outcome, out: str | None) -> Answer:
    _keep(kit, live)
    answer = Answer(outcome, live.session)
    if out:
        kit.shell.user_ns[out] = answer
    return answer


def _keep(kit: CtxKit, live: LiveSession) -> None:
    """Make the session known to the other magics, and write its chart, which opens offline."""
    from ctxkit.plots import growth

    kit.sessions.add(live.session, live.name)
    growth(live.session).write_html(live.workspace.chart(live.id))


def _limits(asked: Ask) -> Limits:
    given = {
        "calls": asked.max_calls,
        "cost_usd": asked.max_cost,
        "tokens": asked.max_tokens,
        "seconds": asked.max_seconds,
    }
    return Limits(**{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]


def _by_role(messages: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for m in messages:
        counts[m.role] = counts.get(m.role, 0) + 1
    return counts
