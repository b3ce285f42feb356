"""What of a team's config is not known, or known and not obeyed here: sentences for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.errors import did_you_mean
from ctxkit.markup import plain
from ctxkit.presets.configs.fuseraft import read
from ctxkit.teams.config_fields import Fields, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

CONTRACT = ("Name", "Description", "Requires")
REQUIREMENT = ("Type", "Path", "Source", "Field", "PatternField", "Pattern", "NoFailures",
               "HasAssertions")  # fmt: skip
SELECTION = ("Type", "StateMachine")
MACHINE = ("Initial", "States")
STATE = ("Agent", "Terminal", "Transitions", "Description")
TRANSITION = ("To", "Signal", "Contract", "Contracts", "SourceAgents", "RecoveryAgent",
              "HandoffContext", "MaxRevisits", "ReviewArtifactPath", "Parallel")  # fmt: skip
SOURCE = ("Source", "MaxChars", "Label")
STRATEGY = ("Type", "Pattern", "MaxIterations", "AgentNames")
TERMINATION = (*STRATEGY, "Strategies")
UNCHECKED = ("RelatedTestsPass",)
"""Requirements of fuseraft that are not checked here."""
OBEYED = ("Context", "Isolation", "Contracts", "Termination", "MaxTotalTokens", "Validation",
          "Selection (but for its signals)", "ContextWindow.ContextCapFraction",
          "SubAgentModel", "SubAgentPlugins", "SubAgentMaxToolCalls")  # fmt: skip
"""What rules alone do not obey, and a team does."""
WHY = {
    "Verifier": "no agent audits the others",
    "Saga": "nothing is taken back",
    "McpServers": "no server is asked",
    "FailureHandling": "failed contracts are said again, then stop the team",
    "EvidenceStore": "the evidence lies in .ctxkit/state",
    "ChangeTracking": "the changes lie in .ctxkit/state",
    "Checkpoint": "the checkpoint lies in .ctxkit/state",
    "Events": "the events lie in .ctxkit/logs",
    "Security": "tools work in the folder that root= names, and nowhere else",
    "AgentFile": "its text is not read: put it into Instructions",
}


def remarks(config: Mapping[str, Any], body: Fields) -> list[str]:
    """Return what of a config is not obeyed, and which of its keys nobody knows."""
    unknown = [
        f"{where} has a key {plain(key, 60)!r} that is not known, and not obeyed."
        f"{did_you_mean(key, known)}"
        for where, fields, known in _sections(body)
        for key in fields
        if key.casefold() not in {k.casefold() for k in known}
    ]
    unknown += [
        f"{kind} of contract {plain(c.text('Name'), 40)} is not checked here."
        for c in body.rows("Contracts")
        for row in c.rows("Requires")
        if (kind := row.text("Type")) in UNCHECKED
    ]
    found = read(config, None)
    unknown += [f"{told} is not known, and not obeyed." for told in found.unknown]
    beside = {k.casefold(): (k, why) for k, why in WHY.items()}
    out, others = [], []
    for key in dict.fromkeys((*body, *found.elsewhere)):
        last = key.rsplit(".", 1)[-1]
        if last.casefold() in beside:
            out.append(f"{plain(key, 80)} is not obeyed here: {beside[last.casefold()][1]}.")
        elif key in found.elsewhere and last not in {o.rsplit(".", 1)[-1] for o in OBEYED}:
            others.append(plain(key, 80))
    if others:
        out.append(f"Not obeyed here: {listed(others)}.")
    return [*unknown, *out]


def _sections(body: Fields) -> Iterator[tuple[str, Fields, tuple[str, ...]]]:
    """Yield each section that only a team reads: where it is, what it says, what is known."""
    for contract in body.rows("Contracts"):
        name = f"Contract {plain(contract.text('Name'), 40)}"
        yield name, contract, CONTRACT
        for n, row in enumerate(contract.rows("Requires"), 1):
            kind = row.text("Type") or next(iter(row), "")
            inner = row if row.text("Type") else row.section(kind) or Fields({})
            if kind in UNCHECKED:
                continue
            yield f"Requirement {n} of {name[0].lower()}{name[1:]}", inner, REQUIREMENT
    for agent in body.rows("Agents"):
        for source in agent.rows("Context"):
            yield f"A source in the Context of {plain(agent.text('Name'), 40)}", source, SOURCE
    ending = body.section("Termination") or Fields({})
    yield "Termination", ending, TERMINATION
    for n, strategy in enumerate(ending.rows("Strategies"), 1):
        yield f"Strategy {n} of Termination", strategy, STRATEGY
    selection = body.section("Selection") or Fields({})
    yield "Selection", selection, SELECTION
    yield from _machine(selection.section("StateMachine") or Fields({}))


def _machine(machine: Fields) -> Iterator[tuple[str, Fields, tuple[str, ...]]]:
    yield "Selection.StateMachine", machine, MACHINE
    states = machine.section("States") or Fields({})
    for name in states:
        state = states.section(name) or Fields({})
        yield f"State {plain(name, 40)}", state, STATE
        for n, way in enumerate(state.rows("Transitions"), 1):
            at = f"transition {n} of state {plain(name, 40)}"
            yield at[0].upper() + at[1:], way, TRANSITION
            for source in way.rows("HandoffContext"):
                yield f"A source in the HandoffContext of {at}", source, SOURCE
