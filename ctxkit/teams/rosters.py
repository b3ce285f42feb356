"""What a team is: its agents, how they hand the work on, and what must be there before they may."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ctxkit.teams.failures import FailurePolicy

if TYPE_CHECKING:
    from ctxkit.policies.rules import Rules
    from ctxkit.teams.conditions import Condition
    from ctxkit.teams.failures import Verifier

Isolation = Literal["shared", "fresh", "fork", "sealed"]
"""`sealed` hears nobody, and is not told the task: a critic of an adversarial selection."""
Order = Literal["statemachine", "roundrobin", "sequential"]

ARTIFACT_CHARS, HISTORY_CHARS = 4_000, 8_000
"""Characters of a source unless it says how many (fuseraft's)."""


@dataclass(frozen=True, kw_only=True)
class ContextSource:
    """One source of a context that is put together from files."""

    kind: str
    """`session_context`, `changes_recent`, `brief_field`, `file` or `own_history`."""
    argument: str = ""
    max_chars: int = ARTIFACT_CHARS
    label: str = ""

    @property
    def name(self) -> str:
        """How it is written in a config."""
        return f"{self.kind}:{self.argument}" if self.argument else self.kind


@dataclass(frozen=True, kw_only=True)
class SubPlan:
    """An agent that works for another as its tool."""

    model: str = ""
    """As the config names it; empty: that of the agent it works for."""
    tools: tuple[str, ...] = ("files",)
    max_calls: int | None = None


@dataclass(frozen=True, kw_only=True)
class Member:
    """One agent of a team."""

    name: str
    instructions: str = ""
    model: str = ""
    """As the config names it; empty: the team's."""
    tools: tuple[str, ...] = ("files",)
    handoff: bool = False
    """True where it may hand on by a tool call, too."""
    isolation: Isolation = "shared"
    context: tuple[ContextSource, ...] = ()
    """Declared sources; with any, it is shown them and its own turns, and nothing else."""
    rules: Rules
    shown: dict[str, Any] = field(default_factory=dict)
    """What it is shown of the others, in the config's own keys."""
    sub: SubPlan | None = None
    """The agent that it can ask; None: none."""
    cap: int = 0
    """Messages that its window keeps; 0: all."""
    cap_fraction: float = 0.0
    """From which share of them on a turn is told as an event; 0: never."""
    max_calls: int | None = None
    """Calls to its model in one turn; None: the usual limit."""
    remembers: bool = False
    """Whether what it remembers is put in when its session is opened."""


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One thing that must be there."""

    kind: Literal["FileExists", "FilesWritten", "CommandSucceeded", "TestReport",
                  "ChecklistComplete", "RelatedTestsPass", "Brief"]  # fmt: skip
    path: str = ""
    field: str = ""
    pattern: str = ""
    no_failures: bool = False
    has_assertions: bool = False
    this_turn: bool = False
    """Whether only what was done in the turn that hands on counts."""


@dataclass(frozen=True, kw_only=True)
class Contract:
    """Things that must be there before a hand-off happens."""

    name: str
    requires: tuple[Requirement, ...]


@dataclass(frozen=True, kw_only=True)
class Transition:
    """A way out of a state."""

    to: str
    signal: str = ""
    """Empty: it is taken where the turn is over and no other is."""
    when: Condition | None = None
    """What the JSON of the reply must say; None: a signal says it."""
    contracts: tuple[Contract, ...] = ()
    source_agents: tuple[str, ...] = ()
    recovery: str = ""
    """The agent that gets one turn when the contracts failed twice in a row."""
    handoff: tuple[ContextSource, ...] = ()
    max_revisits: int = 0
    """How often it may lead back; 0: as often as the team has turns."""
    review: str = ""
    """File whose text is said when it may not lead back once more."""
    targets: tuple[str, ...] = ()
    """States whose agents have a turn each before, none hearing another's (fuseraft's Parallel)."""


@dataclass(frozen=True, kw_only=True)
class TeamState:
    """A state of the work, and who works in it."""

    name: str
    agent: str = ""
    terminal: bool = False
    transitions: tuple[Transition, ...] = ()
    reads: str = ""
    """The agent whose last words its prompt brings; empty: nobody's."""
    item: str = ""
    """Where in the JSON of those words a list is, of which each turn here brings one item."""
    splits: str = ""
    """Where in the JSON of a reply the list must be that is worked off next."""

    @property
    def ends(self) -> bool:
        """True where the work is over."""
        return self.terminal or not self.transitions


@dataclass(frozen=True, kw_only=True)
class Stop:
    """What an agent says that ends the team: a regular expression or a condition on its JSON."""

    pattern: str = ""
    agents: tuple[str, ...] = ()
    """Whose words; empty: anybody's."""
    when: Condition | None = None


@dataclass(frozen=True, kw_only=True)
class Manager:
    """How long the manager of a team may go on without progress."""

    name: str
    stalls: int
    """Rounds without progress, after which it plans anew."""
    resets: int
    """New plans, after which the team stops."""


@dataclass(frozen=True, kw_only=True)
class Roster:
    """A whole team."""

    name: str = "team"
    members: tuple[Member, ...]
    order: Order = "roundrobin"
    initial: str = ""
    branches: tuple[str, ...] = ()
    """States whose agents have a turn each before the first one."""
    states: dict[str, TeamState] = field(default_factory=dict)
    stops: tuple[Stop, ...] = ()
    manager: Manager | None = None
    failing: FailurePolicy = field(default_factory=FailurePolicy)
    verifier: Verifier | None = None
    max_turns: int = 40
    max_tokens: int | None = None
    """Tokens billed to all agents together."""
    warn_at: int = 0
    cutover_at: int = 0
    warn_turn: int = 300_000
    """Tokens of all prompts of one turn, above which it is told as an event; 0: never."""
    summary_model: str = ""
    """Who writes summaries, as the config names it; empty: each agent's own model."""
    brief: str = "brief.json"
    report: str = "test-report.json"
    memory: dict[str, Any] = field(default_factory=dict)
    """The config's section `Memory`: what is asked before each turn; empty: nothing."""
    suite: tuple[str, ...] = ()
    """Commands that run the tests: the whole suite, or those of a file."""
    assertions: tuple[str, ...] = (r"\bassert", r"\bexpect\b")
    """What a test file must hold somewhere to count as one."""
    notes: tuple[str, ...] = ()
    """What of the config is not obeyed here, in sentences."""

    def member(self, name: str) -> Member:
        """Return an agent by its name, upper and lower case alike."""
        return next(m for m in self.members if m.name.casefold() == name.casefold())


def told_of(plan: Roster) -> dict[str, Any]:
    """Return what a team's ledger keeps of its plan: names, what each is shown, thresholds."""
    views = {m.name: m.shown for m in plan.members if m.shown}
    limits = {"warn_at": plan.warn_at, "cutover_at": plan.cutover_at}
    kept = {"views": views, **limits}
    return {"team": [m.name for m in plan.members], **{k: v for k, v in kept.items() if v}}
