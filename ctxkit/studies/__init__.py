"""How far a replay can be trusted: what it foretold, beside what was run.

Three studies: the bill of a mask replayed over runs that were recorded under it (`masks`), how runs
under a policy differ from those without it (`behaviour`, `floors`, `growth`), and agents whose next
step depends on what they are shown (`loops`). Their tables ship with the kit (`table`); `make
studies` makes them from published runs.
"""

from __future__ import annotations

from ctxkit.faces import face

_NAMES = {"table": "tables", "lived": "loops", "loop": "loops"}
_ROOMS = ("behaviour", "charts", "floors", "growth", "loops", "masks", "pages", "runs")

__all__ = [*_NAMES, *_ROOMS]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES, _ROOMS)
