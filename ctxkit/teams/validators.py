"""fuseraft's validators of routes, said as contracts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ctxkit.teams.rosters import Contract, Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.teams.config_fields import Fields

KNOWN = {
    "RequireBrief": Requirement(kind="Brief"),
    "RequireWriteFile": Requirement(kind="FilesWritten", this_turn=True),
    "RequireAllFilesWritten": Requirement(kind="FilesWritten"),
    "RequireShellPass": Requirement(kind="CommandSucceeded", this_turn=True),
    "TestReportValid": Requirement(kind="TestReport", no_failures=True, has_assertions=True),
}


def named_in(f: Fields) -> list[str]:
    """Return the validators that a route names."""
    one = f.text("Validator")
    return [*f.texts("Validators"), *([one] if one else [])]


def validators(f: Fields) -> tuple[Contract, ...]:
    """Return the validators of a route that are known, as contracts."""
    return tuple(_contracts(f))


def _contracts(f: Fields) -> Iterable[Contract]:
    fold = {name.casefold(): name for name in KNOWN}
    for said in named_in(f):
        name = fold.get(said.casefold())
        if name is not None:
            pattern = f.text("RequiredCommandPattern")
            needs = KNOWN[name]
            shell = name == "RequireShellPass"
            yield Contract(
                name=name, requires=(replace(needs, pattern=pattern) if shell else needs,)
            )
