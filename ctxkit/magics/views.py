"""`%context`, `list`, `detail`: what fills the window at a call, in one line or a whole report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.display.markup import NO_MATH, escape, line
from ctxkit.magics.arguments import option
from ctxkit.magics.subcommands import Subcommand
from ctxkit.magics.table_commands import TableLine, shown
from ctxkit.messages import Edit
from ctxkit.sizes.prompt_sizes import standing_call

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.composition import ContextReport
    from ctxkit.magics.kit_state import KitState

_STYLE = "color:var(--jp-content-font-color1,inherit);line-height:1.5"
_NUMBER = "text-align:right;padding:0 12px 0 0"
_WORD = "text-align:left;padding:0 12px 0 0"


@dataclass(frozen=True)
class At(TableLine):
    """The line of a view."""

    call: int | None = option(
        "number of the call, from 0; negatives count from the end (without it the last one)"
    )


@dataclass(frozen=True, repr=False)
class Status:
    """The context in one line, then one line a group, then the largest messages; `report` has all
    of it.
    """

    report: ContextReport
    compactions: int
    """Compactions before the call."""
    largest: int

    @property
    def one_line(self) -> str:
        """`Context: 16k/32k (50%) · Compactions: 2`."""
        r = self.report
        unsure = "" if r.prompt_source == "recorded" else f" · {r.prompt_source}"
        size = f"{_short(r.prompt_tokens)}/{_short(r.limit)} ({r.full:.0%})"
        return f"Context: {size} · Compactions: {self.compactions}{unsure}"

    def rows(self) -> list[tuple[str, str, str]]:
        """Return tokens, share and name of each group, then of the largest messages."""
        whole = max(self.report.prompt_tokens, 1)
        named = list(self.report.groups().items())
        largest = self.report.contributors[: self.largest]
        named += [(line(c.name, 80), c.tokens) for c in largest]
        return [(f"{n:,}", f"{n / whole:.0%}", name) for name, n in named]

    def __repr__(self) -> str:
        groups = len(self.report.groups())
        lines = [f"{n:>9}  {share:>4}  {name}" for n, share, name in self.rows()]
        largest = [_largest(len(lines) - groups), *lines[groups:]] if len(lines) > groups else []
        return "\n".join([self.one_line, self._where(), *lines[:groups], *largest])

    def _repr_html_(self) -> str:
        groups, rows = len(self.report.groups()), [_row(*row) for row in self.rows()]
        largest = _table(_largest(len(rows) - groups), rows[groups:]) if len(rows) > groups else ""
        head = f"<strong>{escape(self.one_line)}</strong><br>{escape(self._where())}"
        box = f'<div class="{NO_MATH}" style="{_STYLE}">'
        return f"{box}{head}{_table('', rows[:groups])}{largest}</div>"

    def _where(self) -> str:
        r = self.report
        at = "before the next call" if r.call is None else f"at call {r.call}, turn {r.turn}"
        return " · ".join(
            [line(r.title or r.session, 60), at, *([line(r.model, 60)] if r.model else [])]
        )


def status(kit: KitState, asked: At) -> Status:
    """Return the context of the active session in short."""
    session, made = kit.session(asked.session), detail(kit, asked)
    stop = len(session.path) if made.call is None else session.call(made.call).position
    before = sum(isinstance(e, Edit) for e in session.path[:stop])
    return Status(made, before, kit.contributors)


def listing(kit: KitState, asked: At) -> pd.DataFrame:
    """Return one row a section of the window."""
    columns = ["part", "name", "tokens", "share", "messages_n", "source"]
    return shown(detail(kit, asked).frame()[columns])


def audience(kit: KitState, asked: TableLine) -> pd.DataFrame:
    """Return one row a message that the user sees, and whether the agent sees it, too."""
    from ctxkit.frames.audiences import audience as of

    table = of(kit.session(asked.session))
    seen = table[table["user_sees"]].drop(columns=["session", "id", "user_sees"])
    return shown(seen.set_index("position"))


def detail(kit: KitState, asked: At) -> ContextReport:
    """Return the whole report."""
    from ctxkit.composition import report

    session = kit.session(asked.session)
    if asked.call is not None:
        return report(session, asked.call)
    if session.behind is not None and session.format != "replay":
        return report(session, standing_call(session))
    after = session.path[session.calls[-1].position + 1 :] if session.calls else ()
    compacted = any(
        isinstance(e, Edit) for e in after
    )  # since the last call: what comes next is another prompt
    return report(session, None if compacted or not session.calls else -1)


def _short(n: int) -> str:
    return f"{n / 1e6:.1f}M" if n >= 999_500 else f"{n / 1000:.0f}k" if n >= 1000 else str(n)


def _largest(n: int) -> str:
    return f"the {n} largest messages" if n > 1 else "the largest message"


def _row(tokens: str, share: str, name: str) -> str:
    cells = f'<td style="{_NUMBER}">{tokens}</td><td style="{_NUMBER}">{share}</td>'
    return f'<tr>{cells}<td style="{_WORD}">{escape(name, 120)}</td></tr>'


def _table(caption: str, rows: list[str]) -> str:
    told = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    heads = "".join(
        f'<th scope="col" style="{s}">{h}</th>'
        for s, h in ((_NUMBER, "tokens"), (_NUMBER, "share"), (_WORD, "part"))
    )
    return f"<table>{told}<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


SUBCOMMANDS = (
    Subcommand(
        "status", "How full the window is, in one line, and what fills it in short.", At, status
    ),
    Subcommand("list", "What fills the window at a call, one line a section.", At, listing),
    Subcommand("user", "What the user sees, and what of it the agent sees.", TableLine, audience),
    Subcommand("detail", "The whole report of a call, with its largest messages.", At, detail),
)
