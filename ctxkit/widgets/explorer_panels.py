"""The panels of an explorer as HTML: where it stands, the growth with a mark, the bar of what fills
the prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.composition import GROUPS
from ctxkit.display.markup import escape, line
from ctxkit.plots.palette import COLOURS, GROUP_COLOURS
from ctxkit.widgets.scenes import first_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.widgets.scenes import ListLine, Scene

TEXT = "var(--jp-content-font-color1,var(--vscode-foreground,inherit))"
SOFT = "var(--jp-content-font-color2,var(--vscode-descriptionForeground,#777777))"
_WIDTH, _HEIGHT, _POINTS = 1000, 90, 500


def heading(scene: Scene, calls: int) -> str:
    """One line: which call, how large its prompt, how full the window."""
    return f'<div style="color:{TEXT};line-height:1.5">{escape(told(scene, calls), 300)}</div>'


def told(scene: Scene, calls: int) -> str:
    """The heading as plain text."""
    if scene.call is None:
        return f"No call in this session: {len(scene.items):,} messages stand."
    size = "size unknown" if scene.tokens is None else f"{scene.tokens:,} tokens ({scene.source})"
    full = ""
    if scene.tokens and scene.limit:
        full = f", {scene.tokens / scene.limit:.0%} of {scene.limit:,}"
    model = f" · {line(scene.model, 50)}" if scene.model else ""
    where = f"Call {scene.call} (of 0 to {calls - 1}) · turn {scene.turn}"
    return f"{where} · {size}{full} · {len(scene.items):,} messages{model}"


def growth(prompts: Sequence[int | None], limit: int | None, at: int | None) -> str:
    """The size of each prompt as a line, with a mark at one call; empty where no size is known."""
    known = [(i, n) for i, n in enumerate(prompts) if n is not None]
    if len(known) < 2:
        return ""
    peak = max(n for _, n in known)
    top = limit if limit is not None and peak <= limit <= 3 * peak else peak
    step = _WIDTH / max(1, len(prompts) - 1)

    def y(n: int) -> float:
        return _HEIGHT - 4 - (_HEIGHT - 8) * n / max(1, top)

    points = " ".join(f"{i * step:.1f},{y(n):.1f}" for i, n in _thinned(known))
    lines = [_rule(0, _WIDTH, y(top), y(top), SOFT, "4 4")] if top == limit else []
    lines += [] if at is None else [_rule(at * step, at * step, 0, _HEIGHT, COLOURS[1])]
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img"'
        f' aria-label="Prompt tokens of each call, up to {peak:,}"'
        f' style="width:100%;height:{_HEIGHT}px;display:block"><polyline points="{points}"'
        f' fill="none" stroke="{COLOURS[0]}" stroke-width="2"'
        f' vector-effect="non-scaling-stroke"/>{"".join(lines)}</svg>'
    )


def _rule(x1: float, x2: float, y1: float, y2: float, colour: str, dashes: str = "none") -> str:  # noqa: PLR0917
    return (
        f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        f' stroke-width="1.5" stroke-dasharray="{dashes}" vector-effect="non-scaling-stroke"/>'
    )


def bar(scene: Scene) -> str:
    """What fills the prompt, as one bar with its legend: group, tokens, share."""
    total = sum(n for _, n in scene.groups)
    if total <= 0:
        return ""
    blocks, names = [], []
    for name, n in scene.groups:
        colour, share = GROUP_COLOURS[GROUPS.index(name)], 100 * n / total
        blocks.append(
            f'<div style="width:{share:.2f}%;background:{colour}" title="{escape(name)}:'
            f' {n:,}"></div>'
        )
        names.append(
            '<span style="white-space:nowrap;margin-right:16px"><span'
            f' style="display:inline-block;width:10px;height:10px;border-radius:2px'
            f';background:{colour};margin-right:5px"></span>{escape(name)}'
            f" {n:,} ({share:.0f} %)</span>"
        )
    return (
        f'<div style="color:{TEXT}"><div role="img" aria-label="What fills the prompt"'
        f' style="display:flex;gap:1px;height:18px;border-radius:4px;overflow:hidden">'
        f"{''.join(blocks)}</div><div"
        f' style="margin-top:4px;line-height:1.7">{"".join(names)}</div></div>'
    )


def listing(items: Sequence[ListLine]) -> str:
    """Some messages as a table, for front ends without widgets."""
    rows = "".join(
        f'<tr><td style="text-align:right">{i.position}</td><td'
        f' style="text-align:right">{"" if i.tokens is None else f"{i.tokens:,}"}</td><td'
        f' style="text-align:left">{escape(i.name)}</td><td'
        f' style="text-align:left">{escape(line(first_words(i.message), 80))}</td></tr>'
        for i in items
    )
    heads = "".join(f'<th scope="col">{h}</th>' for h in ("message", "tokens", "from", "begins"))
    return (
        "<table><caption>Largest"
        f" messages</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _thinned(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """At most two points a bin, its lowest and its highest, so that no peak is lost."""
    if len(points) <= 2 * _POINTS:
        return points
    size = -(-len(points) // _POINTS)
    out: list[tuple[int, int]] = []
    for i in range(0, len(points), size):
        part = points[i : i + size]
        out += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return out
