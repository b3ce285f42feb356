"""tau-bench results: a list of runs, each a conversation of an agent with a simulated user, and its reward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.messages import Fault
from ctxkit.readers.dialects import named, to_messages
from ctxkit.readers.fields import DAMAGE, items, mapping, real, why
from ctxkit.readers.logs import Log
from ctxkit.session import Session

if TYPE_CHECKING:
    from ctxkit.readers.source import Source

NAME = "tau-bench"
ALIASES = ("tau2-bench",)
CAN = "text, system prompt, calls and results, rewards; several runs a file"
CANNOT = "usage, times, model, tool schemas"


def sniff(source: Source) -> bool:
    """Say whether this is a list of runs with a `traj`."""
    runs = items(source.document)
    return bool(runs) and _is_run(runs[0])


def _is_run(run: Any) -> bool:
    return type(run) is dict and type(run.get("traj")) is list and "task_id" in run


def read(source: Source) -> list[Session]:
    """Return one session a run; what is no run is a fault of the first."""
    out: list[Session] = []
    faults: list[Fault] = []
    for i, run in enumerate(items(source.document)):
        if _is_run(run):
            out.append(_session(source, run, i, faults))
            faults = []
        else:
            faults.append(Fault(0, f"run {i}: expected an object with 'task_id' and 'traj'"))
    return out


def _session(source: Source, run: dict[str, Any], index: int, faults: list[Fault]) -> Session:
    log, skipped, faults, asked = Log(), dict[str, int](), list(faults), dict[str, str]()
    for n, raw in enumerate(run["traj"]):
        try:
            for m in named(to_messages(raw, log, skipped), asked):
                log.add(m)
        except DAMAGE as e:
            faults.append(Fault(0, f"run {index}, message {n}: {why(e)}"))
    info = mapping(run.get("info"))
    task = run["task_id"] if type(run["task_id"]) in (int, str) else index
    trial = run.get("trial") if type(run.get("trial")) in (int, str) else 0
    details = {
        "task_id": task,
        "trial": trial,
        "reward": real(run.get("reward")),
        "user_cost": real(info.get("user_cost")),
    }
    return Session(
        id=f"{source.path.stem}/{task}/{trial}",
        format=NAME,
        product="tau-bench",
        log=tuple(log.entries),
        skipped=skipped,
        faults=tuple(faults),
        details={k: v for k, v in details.items() if v is not None},
    )
