"""Measure the answers that have a page of their own: `python docs/make_answers.py [PAGE ...]`.

Each page holds what was measured between two comments; the script writes that part anew, from made
data with seeds, or from public data beside CTXKIT_SESSIONS. Its pictures are made here, too.
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import ctxkit as ck
from ctxkit.experiments.studies.rule_survival import (
    HELD_OUT_WORDINGS,
    RULES_PER_TALK,
    make_talks,
    measure_rule_survival,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DOCS = Path(__file__).parent
_MEASURED = re.compile(r"(<!-- measured -->\n).*?(<!-- end of measured -->)", re.DOTALL)
RULE_TALKS = 10


def make_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table; all columns but the first stand to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def draw(chart: ck.plots.Chart, label: str) -> str:
    """Return the SVG of a chart with a name for who cannot see it."""
    picture = chart.drawing.svg().partition("</svg>")[0] + "</svg>\n"
    return picture.replace('aria-hidden="true"', f'role="img" aria-label="{label}"')


def measure_rules() -> str:
    """Measure how many rules outlive made talks, with and without `keep_rules`."""
    frame = measure_rule_survival(make_talks(RULE_TALKS))
    kept = frame["with_empty"].min()
    cheap = (frame["more_tokens"] <= 0.02).sum()
    missed = frame[frame["more_tokens"] > 0.02]
    names = ", ".join(f"`{r.rules}` {r.more_tokens:.1%}" for r in missed.itertuples())
    columns = ["kept_empty", "with_empty", "kept_extract", "with_extract"]
    rows = [
        [
            f"`{r['rules']}`",
            f"{r['compactions_n']:.1f}",
            *(f"{r[c]:.0%}" for c in columns),
            f"{r['more_tokens']:+.1%}",
        ]
        for r in frame.to_dict("records")
    ]
    head = ["preset", "compactions", "empty summary", "with `keep_rules`"]
    head += ["extract", "with `keep_rules`", "tokens"]
    return (
        f"With `keep_rules` at least {kept:.0%} of the rules are kept under each of {len(frame)} presets;"
        f" {cheap} of them send at most 2 % more tokens"
        + (f", the others, which keep tiny contexts, more ({names})" if names else "")
        + f". {RULE_TALKS} talks (seeds 0-0 to 0-{RULE_TALKS - 1}), {RULES_PER_TALK} rules each, windows of"
        f" 64,000 tokens, {len(HELD_OUT_WORDINGS)} wordings that the extractor was not written on.\n\n"
        + make_table(head, rows)
    )


MEASURES: dict[str, Callable[[], str]] = {"keep-rules": measure_rules}
"""The pages, and what measures them."""


def make_pictures() -> dict[str, str]:
    """Return the pictures of the pages by name."""
    billing = ck.read(ck.samples.path("billing"))
    return {"rules": draw(ck.plots.user_rules(billing), "The calls whose prompts state each rule")}


def replace_measured(text: str, measured: str) -> str:
    """Return a page with another measure."""
    return _MEASURED.sub(lambda found: f"{found[1]}{measured}\n{found[2]}", text, count=1)


def main() -> None:
    """Write the measures of the pages that are named, or of all, and all pictures."""
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or MEASURES:
        path = DOCS / f"{name}.md"
        text = path.read_text(encoding="utf-8")
        path.write_text(replace_measured(text, MEASURES[name]()), encoding="utf-8")
        print(path)  # noqa: T201
    for name, picture in make_pictures().items():
        (DOCS / "pictures" / f"{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
