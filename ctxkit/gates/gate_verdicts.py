"""Figures now beside those of the baseline: what got worse, by how much, and what is only noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ctxkit.display.markup import escape, line
from ctxkit.display.sheets import Box, Heading, Tabular
from ctxkit.gates.readings import FIGURES, Figure
from ctxkit.redaction import redact

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.gates.readings import Entries, Entry

State = Literal["same", "noise", "better", "worse", "gone"]
_MAY_GO = {"retained"}
"""Figures that are missing where nothing was cut: that is no loss."""
_TINY = 1e-9


class Moved(NamedTuple):
    """One figure of one setting, as the mean over the sessions that both know."""

    rules: str
    figure: str
    sessions_n: int
    before: float
    now: float | None
    floor: float
    """What is less than this is no change: the noise, or the tolerance where that is more."""
    state: State


@dataclass(frozen=True)
class GateReport:
    """What a gate found. `ok` is what CI asks; `frame()` has all rows."""

    changes: tuple[Moved, ...]
    faults: tuple[str, ...] = ()
    """What is wrong whatever the baseline says: failed runs, parted pairs, missing sessions."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Take keys out of what it says: it lands in the logs of CI."""
        for name in ("faults", "notes"):
            object.__setattr__(self, name, tuple(map(redact, getattr(self, name))))

    @property
    def worse(self) -> tuple[Moved, ...]:
        """The figures that got worse by more than the noise, and those that are gone."""
        return tuple(c for c in self.changes if c.state in ("worse", "gone"))

    @property
    def ok(self) -> bool:
        """True where nothing got worse and nothing is at fault."""
        return not self.worse and not self.faults

    def check(self) -> None:
        """Raise an AssertionError with the table where something got worse (for tests)."""
        if not self.ok:
            raise AssertionError(self.to_text())

    def frame(self) -> pd.DataFrame:
        """Return one row a figure: rules, figure, sessions_n, before, now, floor, state."""
        import pandas as pd

        return pd.DataFrame(self.changes, columns=list(Moved._fields))

    def to_text(self) -> str:
        """Return what was found as lines of at most 80 characters."""
        shown = self.worse or tuple(c for c in self.changes if c.state == "better")
        table = Tabular(_HEADS, tuple(tuple(map(Box, cells(c))) for c in shown)).to_text()
        said = [line(s, 400) for s in (*self.faults, *self.notes)]
        return "\n".join([*filter(None, [table]), *said, self.sentence])

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        n, faults = len(self.worse), len(self.faults)
        if self.ok and not self.changes:
            return "The gate is passed: nothing is at fault."
        if self.ok:
            return f"The gate is passed: {len(self.changes)} figures, none got worse."
        told = [f"{n} of {len(self.changes)} figures got worse"] if n else []
        told += [f"{faults} fault{'s' * (faults != 1)}"] if faults else []
        return f"The gate is not passed: {' and '.join(told)}."

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.to_text())}</pre>"


_HEADS = (
    Heading("rules", number=False),
    Heading("figure", number=False, firm=True),
    *map(Heading, ("before", "now", "change", "noise", "")),
)


def cells(change: Moved) -> tuple[str, ...]:
    """Return a change as it stands in a table."""
    kind = next(f.kind for f in FIGURES if f.name == change.figure)
    moved = None if change.now is None else change.now - change.before
    return (
        line(change.rules, 24),
        change.figure,
        number(change.before, kind),
        number(change.now, kind),
        number(moved, kind, sign="+"),
        number(change.floor, kind),
        change.state,
    )


def number(value: float | None, kind: str, sign: str = "") -> str:
    """Return a figure as text."""
    if value is None:
        return "-"
    if kind == "share":
        digits = 1 if not value or abs(value) >= 0.0005 else 3  # a change is not told as none
        return f"{value:{sign}.{digits}%}"
    return f"{value:{sign},.4f}" if kind == "usd" else f"{value:{sign},.1f}"


def compared(before: Entries, now: Entries, tolerance: float = 0.0) -> GateReport:
    """Return how figures have changed, as means over the sessions that both know unchanged."""
    changes: list[Moved] = []
    faults: list[str] = []
    notes: list[str] = []
    for label, entries in now.items():
        old = before.get(label)
        if old is None:
            faults.append(f"The baseline has no figures of {label}: add them with --update.")
            continue
        both = [(old[i], e) for i, e in entries.items() if i in old and old[i].key == e.key]
        faults += _failed(label, entries, old)
        notes += _not_compared(label, entries, old)
        if not both:
            faults.append(f"{label}: no session of the baseline is here unchanged: see --update.")
        changes += [c for f in FIGURES if (c := _change(label, f, both, tolerance)) is not None]
    return GateReport(tuple(changes), tuple(faults), tuple(notes))


def _change(
    label: str, figure: Figure, both: list[tuple[Entry, Entry]], tolerance: float
) -> Moved | None:
    name = figure.name
    pairs = [
        (b.figures[name], n.figures.get(name)) for b, n in both if name in b.figures and not n.error
    ]
    known = [(b, n) for b, n in pairs if n is not None]
    if not pairs or (len(known) < len(pairs) and name in _MAY_GO and not known):
        return None
    if len(known) < len(pairs) and name not in _MAY_GO:
        mean = sum(b.value for b, _ in pairs) / len(pairs)
        return Moved(label, name, len(pairs), mean, None, 0.0, "gone")
    n = len(known)
    before, now = sum(b.value for b, _ in known) / n, sum(m.value for _, m in known) / n
    noise = sum(max(b.noise, m.noise) for b, m in known) / n
    floor = max(noise, tolerance * abs(before))
    moved = (now - before) if figure.worse == "up" else (before - now)
    return Moved(label, name, n, before, now, floor, _state(moved, floor))


def _state(moved: float, floor: float) -> State:
    if abs(moved) <= _TINY:
        return "same"
    if abs(moved) <= floor + _TINY:
        return "noise"
    return "worse" if moved > 0 else "better"


def _failed(label: str, entries: dict[str, Entry], old: dict[str, Entry]) -> list[str]:
    return [
        f"{label} failed on {line(i, 60)}: {e.error}"
        for i, e in entries.items()
        if e.error and not (i in old and old[i].error)
    ]


def _not_compared(label: str, entries: dict[str, Entry], old: dict[str, Entry]) -> list[str]:
    changed = [i for i, e in entries.items() if i in old and old[i].key != e.key]
    new = [i for i in entries if i not in old]
    gone = [i for i in old if i not in entries]
    told = (("changed", changed), ("not in the baseline", new), ("in the baseline alone", gone))
    return [
        f"{label}: {len(found)} session{'s' * (len(found) != 1)} {why}, not compared: "
        f"{line(', '.join(found), 100)}."
        for why, found in told
        if found
    ]
