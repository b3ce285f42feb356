"""`%%agent` and `%agent`: take a turn in a live session, or say how it stands."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from ctxkit.agent.limits import Limits
from ctxkit.agent.resumes import check
from ctxkit.agent.threads import Background, run
from ctxkit.display.amounts import counted
from ctxkit.display.markup import TextAndHtml, line
from ctxkit.errors import BadArguments, ModelError
from ctxkit.injected import Sections, Surroundings, chosen
from ctxkit.library import Library
from ctxkit.magics.answers import Answer
from ctxkit.magics.approvals import Approvals, needed
from ctxkit.magics.attachments import attachments
from ctxkit.magics.handles import Handle, Interrupted
from ctxkit.magics.instructions import offered
from ctxkit.magics.line_options import Ask
from ctxkit.magics.lives import FIRST, SETTINGS
from ctxkit.magics.questions import ask_here
from ctxkit.magics.rehearsals import misfits, rehearse
from ctxkit.magics.texts import Page
from ctxkit.magics.turn_views import CellView, Printed, Screen
from ctxkit.magics.visits import check_alone, joined
from ctxkit.models.model import no_pictures, takes_pictures
from ctxkit.store.workspace import Workspace
from ctxkit.tools.root import Root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.agent.live import LiveSession
    from ctxkit.agent.outcome import Outcome
    from ctxkit.magics.kit_state import KitState
    from ctxkit.messages import Image

_NAME = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")


def take(kit: KitState, asked: Ask, body: str) -> object:
    """Take the turn that a line and a cell ask for; without a prompt, say how things stand."""
    prompt = "\n".join(t for t in (asked.prompt.strip(), body.strip()) if t)
    if not prompt and asked != Ask(session=asked.session):
        raise BadArguments(
            "Nothing was asked: the cell below `%%agent` is the prompt. `%agent` alone is the"
            " status."
        )
    if not prompt:
        return standing(kit, asked.session)
    if asked.out and not asked.out.isidentifier():
        raise BadArguments(
            f"{asked.out!r} is no name of a variable: give `--out` one, such as answer."
        )
    if asked.expand:
        prompt = expanded(prompt, kit.shell.user_ns)
    pictures = attachments(asked.attach, kit.shell.user_ns)
    if asked.via:
        check_alone(asked)
    name, limits = asked.session or kit.lives.standing or FIRST, _limits(asked)
    _changed(Limits(), limits)  # what is no limit is refused before anything is opened
    if asked.trust:
        Workspace().vouch(name)
    if asked.dry_run:
        return dry(kit, name, asked, prompt, pictures)
    fresh = name not in kit.lives or asked.rules is not None or asked.model is not None
    live = kit.lives.open(name, **_named(asked))
    live.limit(_changed(live.agent.limits, limits))
    confirmed = needed(live.settings["approve"], live.agent.tools, live.root)
    notes = [live.log.recovered] if live.log.recovered else []
    notes += [*live.notes, *kit.lives.servers.notes(name)]
    live.notes = ()
    read = live.agent.sections is not None and "project" in live.agent.sections.names
    if not live.session.log and live.settings["root"]:
        note = offered(live.root.folder, read=read)
        notes += [note] if note else []
    for note in [*notes, *(misfits(live.agent) if fresh else [])]:
        print(note)  # noqa: T201  said once, where the session is opened
    live.log.recovered = None
    if pictures and takes_pictures(live.agent.model) is False:
        raise BadArguments(no_pictures(live.agent.model))
    if asked.background:
        return background(kit, live, prompt, asked.out, confirmed, pictures=pictures)
    live.agent.approve = Approvals(confirmed, kit.lives.always(name), ask_here)
    return foreground(kit, live, prompt, asked.out, pictures)


def foreground(
    kit: KitState, live: LiveSession, prompt: str, out: str | None, pictures: Sequence[Image] = ()
) -> Answer:
    """Take a turn while the cell waits; an interrupt keeps what was said so far."""
    try:
        with Screen(live, CellView() if kit.rich else Printed(), raises=True):
            outcome = run(live.turn(prompt, attached=pictures))
    except KeyboardInterrupt:
        _keep(kit, live)
        raise Interrupted(
            f"Interrupted. What was said so far is kept in session {live.name!r}."
        ) from None
    _keep(kit, live)
    return _answer(kit, live, outcome, out)


def background(
    kit: KitState,
    live: LiveSession,
    prompt: str,
    out: str | None,
    confirmed: frozenset[str],
    *,
    pictures: Sequence[Image] = (),
) -> Handle:
    """Take a turn beside the notebook; the variable that was asked for has the handle at once."""
    handle = Handle(live.name, leaves=not kit.seed)  # with a seed no output is changed afterwards
    live.agent.approve = Approvals(confirmed, kit.lives.always(live.name), handle.ask)
    screen = Screen(live, handle if kit.rich else Printed())

    async def work() -> Answer:
        with screen:
            outcome = await live.turn(prompt, attached=pictures)
        return _answer(kit, live, outcome, None, screen.shown)

    def over() -> None:
        handle.over()
        _keep(kit, live)

    handle.running = Background(work(), over)
    kit.lives.runs(live.name, handle.running)
    if out:
        kit.shell.user_ns[out] = handle
    return handle


def standing(kit: KitState, name: str | None) -> Page:
    """Say how a live session stands."""
    live = kit.lives.get(name)
    agent_ = live.agent
    used, limit = agent_.gauge()
    calls = counted(len(live.session.calls), "call")
    cuts = counted(len(live.session.edits), "compaction")
    lines = [
        f"Session {live.name} ({live.id}): {calls}, {cuts}",
        f"Context: {used:,}/{limit:,} tokens ({used / limit:.0%})",
        f"Model: {agent_.model.name}"
        + (f" ({agent_.model.notice})" if agent_.model.notice else ""),
        f"Rules: {agent_.rules.label} · Limits of a turn: {agent_.limits}",
        f"Tools: {', '.join(agent_.tools)} in {live.root.folder}",
        *([f"Sections: {', '.join(agent_.sections.names)}"] if agent_.sections else []),
        *(["Memory: what is remembered here, see %memory list"] if live.memory is not None else []),
        f"Kept in: {live.log.path}",
    ]
    return Page("\n".join(lines))


def dry(kit: KitState, name: str, asked: Ask, prompt: str, pictures: Sequence[Image] = ()) -> Page:
    """Show what a turn would send first, its size and its cost; nothing is sent or kept."""
    settings = kit.lives.settings(name, _named(asked))
    parts = kit.lives.named.parts(settings)
    if parts.via:
        raise BadArguments(
            f"What {parts.via[0]} sends to its model is its own affair: it cannot be shown before."
        )
    kept = kit.lives.get(name).session if name in kit.lives else kit.kept(name)
    model = kit.lives.named.model(parts.model, parts.rules)
    check(kept, model, name)
    tools, system = kit.lives.named.tools(settings["tools"]), kit.lives.named.system(settings)
    tools += kit.lives.servers.tools(name, parts.mcp)  # started: only they know what they offer
    root = Root(parts.root) if parts.root is not None and parts.root.is_dir() else None
    folder = root.folder if root else Workspace().scratch(name)
    held = kit.lives.named.memory(settings["memory"], model)
    around = Surroundings(folder=folder, root=root, own=system, store=Library(),
                          memory=held.text if held is not None else None)  # fmt: skip
    sections = Sections(chosen(settings["sections"]), around)
    return Page(
        rehearse(kept, model, parts.rules, tools, prompt, sections=sections, pictures=pictures)
    )


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


def _answer(
    kit: KitState,
    live: LiveSession,
    outcome: Outcome,
    out: str | None,
    shown: TextAndHtml | None = None,
) -> Answer:
    """Return the answer of a turn.

    Raises:
        ModelError: the model failed; the variable that was asked for has the outcome all the same.
    """
    chart = live.workspace.chart(live.id).relative_to(live.workspace.folder.parent)
    drawn = chart if outcome.spent.calls else None
    answer = Answer(outcome, live.session, shown, drawn, joined(live))
    if answer.own is not None:
        kit.sessions.put(answer.own, f"{live.name}.own")
    if out:
        kit.shell.user_ns[out] = answer
    if outcome.ended == "error":
        raise ModelError(f"{line(outcome.why, 600)} The prompt is kept in session {live.name!r}.")
    return answer


def _keep(kit: KitState, live: LiveSession) -> None:
    """Make the session known to the other magics, and write its chart, which opens offline."""
    from ctxkit.plots import budget

    kit.sessions.put(live.session, live.name)
    live.workspace.write(live.workspace.chart(live.id), budget(live.session).page())


def _named(asked: Ask) -> dict[str, str | None]:
    return {k: getattr(asked, k) for k in SETTINGS}


def _limits(asked: Ask) -> dict[str, float]:
    """Return the limits that a line names; the others stay as they were."""
    given = {
        "calls": asked.max_calls,
        "cost_usd": asked.max_cost,
        "tokens": asked.max_tokens,
        "seconds": asked.max_seconds,
    }
    return {k: v for k, v in given.items() if v is not None}


def _changed(limits: Limits, given: dict[str, float]) -> Limits:
    """Return limits with those that were named; `inf` lifts one."""
    named: dict[str, Any] = {k: None if v == inf else v for k, v in given.items()}
    return replace(limits, **named)
