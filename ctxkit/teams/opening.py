"""`ck.team`: a team from a config (fuseraft's orchestration file, too), or the scripted one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.agent.events import deaf
from ctxkit.agent.limits import Limits
from ctxkit.agent.resumes import kept
from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments
from ctxkit.presets.configs import syntaxes
from ctxkit.presets.configs.fuseraft import check_counts
from ctxkit.store.workspace import Workspace, checked
from ctxkit.teams.agent_files import with_files
from ctxkit.teams.crew import Crew, unasked
from ctxkit.teams.orchestrations import plan_of
from ctxkit.teams.team_paths import barred, with_own_paths
from ctxkit.teams.troupe import SCRIPTED, scripted_team
from ctxkit.teams.working import Team
from ctxkit.tools.root import Root

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.agent.events import Listener
    from ctxkit.agent.running import Approve
    from ctxkit.models.model import Model
    from ctxkit.tools.tool import Tool


def team(
    config: str | Path | Mapping[str, Any] | None = None,
    *,
    name: str = "team",
    model: Model | str = "",
    models: Mapping[str, Model | str] | None = None,
    tools: Sequence[str | Tool] | None = None,
    root: str | Path | None = None,
    allow: Sequence[str] | None = None,
    limits: Limits | None = None,
    approve: Approve | None = None,
    sections: str = "",
    memory: Sequence[str] | None = None,
    hear: Listener = deaf,
    folder: str | Path | None = None,
    clock: Callable[[], float] = time.time,
    seed: str = "",
    words: Mapping[str, Any] | None = None,
) -> Team:
    """Return a team of agents that take turns on one task; `team.run(task)` lets it work.

    A config has the keys of fuseraft's orchestration file: `Agents` with their own model, tools,
    instructions, `ContextWindow` or `Context`, `Isolation`; `Selection` (statemachine, roundrobin,
    sequential, keyword, structured, graph, magentic, llm, adversarial, scattergather, mapreduce);
    `Contracts`, `FailureHandling`, `Verifier`, `Termination`, `ContextBudget`, `Compaction`,
    `Memory`. `team.notes` says what is not obeyed.

    Args:
        config: the config, the path of such a file (YAML or JSON), or `"scripted"`: a team that
            needs no key, and really writes and tests a small program. None: the team of that name
            goes on as it was begun, with the tools, the folder and the models that were named then.
        name: of the team; one that was begun goes on where it stood.
        model: of all agents, in place of what the config names.
        models: models by an agent's name, or by the config's name for a model.
        tools: what agents may have at most: `files`, `document`, `shell`, `python`, tools of one's
            own; None: `files`. A config alone gives nobody a shell.
        root: the folder in which all of them work; None: a scratch folder of the team.
        allow: protected names that their tools may write all the same, such as `.fuseraft`.
        limits: of each turn of each agent.
        approve: asked before each tool call.
        sections: what else stands in each agent's system message, as `%%agent --sections` names it
            (`on`: all of it); empty: its instructions alone, and what is remembered where the
            config says `EnableMemory` or `Memory`.
        memory: what a `Memory` or `EnableMemory` of the config reaches beyond the team's own:
            `user` (what you keep of agents of these names, and so does fuseraft), `webhook`.
        hear: is told every event of every agent.
        folder: the working folder, in whose `.ctxkit` the team is kept; None: the current one.
        clock: seconds since 1970.
        seed: what ids follow from; empty: by chance.
        words: what else is kept of how it was opened.

    Raises:
        BadArguments: the config cannot work; the sentence says where.
        ReadError: the file cannot be read.
        StoreError: another process runs the team.
    """
    workspace = Workspace(folder)
    if config is None:
        before = begun_as(workspace, name)
        config, model = before["config"], model or before["model"]
        models = models or before["models"]
        tools = before["tools"] if tools is None else tools
        root, allow = root or before["root"] or None, before["allow"] if allow is None else allow
        sections = sections or before.get("sections", "")
        memory = before.get("memory", ()) if memory is None else memory
    tools, allow = ("files",) if tools is None else tuple(tools), tuple(allow or ())
    memory = tuple(memory or ())
    given, named = dict(models or {}), config
    if config == SCRIPTED:
        config, played = scripted_team(clock)
        given, tools = {**played, **given}, ("files", "shell") if tools == ("files",) else tools
    if isinstance(config, (str, Path)):
        place = Path(config).expanduser().parent
        content, _ = syntaxes.load(config)
        check_counts(content)
        config = with_files(content, place)
    if not isinstance(config, Mapping):
        raise BadArguments("A team is made of a config, the path of one, or 'scripted'.")
    body = with_own_paths(_plain(config))
    plan = plan_of(body)
    where = Root(root, allow) if root else _scratch(workspace, name, allow)
    crew = Crew(
        plan, models=given, model=model, tools=tools, root=where, allow=allow, clock=clock,
        limits=limits or Limits(), approve=approve, hear=hear, seed=seed, sections=sections,
        memory=memory,
    )  # fmt: skip
    how = {
        "config": SCRIPTED if named == SCRIPTED else body,
        "model": _text(model), "models": {k: m for k, m in given.items() if isinstance(m, str)},
        "tools": [t for t in tools if isinstance(t, str)], "root": str(root or ""),
        "allow": list(allow), "sections": sections, "memory": list(memory),
        **(words or {}),
    }  # fmt: skip
    made = Team(plan, crew, name=name, workspace=workspace, clock=clock, seed=seed, words=how)
    made.notes = (*plan.notes, *unasked(plan, tools, memory), *barred(plan, allow))
    return made


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(msgspec.to_builtins(dict(config)))
    except (RecursionError, TypeError, ValueError):
        raise BadArguments(
            "A team's config holds keys, texts, numbers, lists and sections, and none of these"
            " holds itself: give it the path of a file, or such a mapping."
        ) from None


def begun_as(workspace: Workspace, name: str) -> dict[str, Any]:
    """Return how a team of this user was opened last: config, model, models, tools, root, allow.

    Raises:
        BadArguments: there is no such team, or nothing is kept of it under the user's seal.
    """
    found = kept(workspace.session(name))
    words = found.words if found is not None else {}
    if not words.get("config"):
        raise BadArguments(
            f"No team {plain(name, 60)!r} was begun here by you: say which config it has, "
            f"ck.team('orchestration.yaml', name={plain(name, 60)!r}), or 'scripted'."
        )
    return words


def _text(model: Model | str) -> str:
    return model if isinstance(model, str) else ""


def _scratch(workspace: Workspace, name: str, allow: Sequence[str]) -> Root:
    """Return the team's own folder for its tools, made without following links."""
    workspace.make()
    place = workspace.scratch(checked(name))
    with workspace.reach(place, make=0o777):
        return Root(place, allow)
