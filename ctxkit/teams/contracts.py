"""Whether a contract holds, by what the agents really did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.errors import StoreError
from ctxkit.redaction import redact
from ctxkit.teams.handoffs import brief, read_json, read_text
from ctxkit.teams.patterns import is_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.teams.deeds import Deed
    from ctxkit.teams.rosters import Contract, Requirement, Roster
    from ctxkit.tools.root import Root


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What a contract is held against."""

    root: Root
    plan: Roster
    changes: Sequence[Deed]

    def lacking(self, contracts: Iterable[Contract]) -> list[str]:
        """Return in words what is not there of what contracts require."""
        needs = [(c.name, r) for c in contracts for r in c.requires]
        return [f"{name}: {why}" for name, r in needs if (why := self._why(r))]

    def status(self, contracts: Iterable[Contract]) -> list[dict[str, str]]:
        """Return each contract by its name, with what it lacks (`why`; empty where it holds)."""
        rows = {c.name: [w for r in c.requires if (w := self._why(r))] for c in contracts}
        return [{"name": name, "why": redact("; ".join(why))} for name, why in rows.items()]

    def read(self, path: str) -> str:
        """Return the text of a file of the team; empty where there is none."""
        return read_text(self.root, path)

    def _why(self, r: Requirement) -> str:
        """Return why a requirement does not hold; empty where it does."""
        checks = {"FileExists": self._file, "FilesWritten": self._written,
                  "CommandSucceeded": self._command, "TestReport": self._report}  # fmt: skip
        return checks[r.kind](r)

    def _file(self, r: Requirement) -> str:
        try:
            with self.root.opened(r.path):
                return ""
        except StoreError:
            return f"there is no file {r.path}"

    def _written(self, r: Requirement) -> str:
        found = (read_json(self.root, r.path or self.plan.brief) or {}).get(
            r.field or "files_to_change"
        )
        if not isinstance(found, list) or not found:
            return f"{r.path or self.plan.brief} names no {r.field or 'files_to_change'}"
        paths = {_plain(p) for c in self.changes for p in c.written}
        left = [str(p) for p in found if _plain(str(p)) not in paths]
        return f"not written: {', '.join(left[:10])}" if left else ""

    def _command(self, r: Requirement) -> str:
        """Ask for a command whose last run succeeded."""
        wanted = str(brief(self.root, self.plan.brief).get(r.field) or "") if r.field else ""
        words = [wanted] if wanted else r.pattern.split("|")
        said = wanted or r.pattern or "any command"
        last: bool | None = None
        for change in self.changes:
            for command, ok in change.commands:
                last = ok if _matches(words, command) else last
        if last is None:
            return f"no command like {said!r} was run"
        return "" if last else f"the last command like {said!r} failed"

    def _report(self, r: Requirement) -> str:
        path = r.path or self.plan.report
        report = read_json(self.root, path)
        rows = report.get("results") if report else None
        if not isinstance(rows, list) or not rows:
            return f"{path} has no results"
        bad = [
            x for x in rows if not isinstance(x, dict) or str(x.get("status", "")).upper() != "PASS"
        ]
        if r.no_failures and bad:
            return f"{path} reports {len(bad)} of {len(rows)} as not passed"
        if r.has_assertions and not self._asserts():
            return "no test file that was written holds an assertion"
        return ""

    def _asserts(self) -> bool:
        files = {p for c in self.changes for p in c.written if "test" in p.casefold()}
        texts = (self.read(path)[:200_000] for path in sorted(files) if not path.endswith(".json"))
        return any(is_in(self.plan.assertions, text) for text in texts)


def _plain(path: str) -> str:
    return path.replace("\\", "/").removeprefix("./")


def _matches(words: Iterable[str], command: str) -> bool:
    """Say whether a command holds one of some texts (fuseraft's patterns are texts
    between bars).
    """
    return any(w.strip().casefold() in command.casefold() for w in words)
