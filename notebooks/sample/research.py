"""Long pages, read once: what was found on the first of them stands in the report at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.course.generator.tape import Provider, Tape
from sample.prose import page

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

LARGE = Provider(window=200_000, due=165_000, keep=20_000)
TITLE = "Heat pumps in old houses"
STARTED = 1773046800.0  # Monday 9 March 2026, 09:00 UTC
SYSTEM = (
    "You research a question on the web and write a report. Search, open pages, and note what you take from each, "
    "with its address. A figure without a source is left out. Use only pages that you have opened."
)
TOPICS = (
    "seasonal performance", "radiators", "noise", "grants", "tariffs", "insulation", "hybrid systems", "refrigerants",
    "legionella", "cellars", "installers", "failures",
)  # fmt: skip


def play(rng: Random, count: Callable[[str], int]) -> Tape:
    """Return the tape of one day of reading."""
    found: list[tuple[str, str, str]] = []
    tape = Tape(
        SYSTEM,
        rng=rng,
        count=count,
        summary=lambda _: _notes(found),
        fixed=900,
        start=STARTED,
        of=LARGE,
    )
    tape.user(
        "Are heat pumps worth it in houses from before 1940? I need a report with sources for the council on Thursday. "
        "Constraints: no figures older than 2021, and never cite a page of a seller.", 4.0,
    )  # fmt: skip
    for topic in TOPICS:
        _look_up(tape, rng, topic, found)
        if topic in ("noise", "insulation", "legionella"):
            tape.answer(f"So far {len(found)} figures with a source. Next I look at what is open.")
            tape.user("Go on. Mind the two constraints.", rng.choice((90.0, 2_400.0)))
    for topic, figure, url in found[:6]:
        step = ("open", {"url": url, "find": topic}, f"...{figure}...", False)
        tape.step(step, text=f"I check the source on {topic} once more before I cite {url}.")
    tape.answer(
        "# Report\n\n" + "\n".join(f"* {topic}: {figure} ({url})" for topic, figure, url in found)
    )
    tape.user("Which of these rest on one source only?", 1_900.0)
    tape.answer("These: " + "; ".join(f"{topic} ({url})" for topic, _, url in found[::4]))
    return tape


def _look_up(tape: Tape, rng: Random, topic: str, found: list[tuple[str, str, str]]) -> None:
    urls = [
        f"https://{site}.example/{topic.replace(' ', '-')}/{rng.randrange(100, 999)}"
        for site in "abcdef"
    ]
    results = "\n".join(f"{i}. {u}\n   {page(rng, topic, (), 3)}" for i, u in enumerate(urls, 1))
    asked = ("search", {"query": f"{topic} old houses measured"}, results, False)
    tape.step(asked, thinking=f"What is known about {topic}?")
    for url in rng.sample(urls, 3):
        figure = f"{rng.randrange(11, 99)}.{rng.randrange(10)} % of {rng.randrange(100, 900)} houses ({topic})"
        text = page(rng, topic, (f"Measured: {figure}.",), rng.randrange(190, 300))
        tape.step(("open", {"url": url}, text, False), text=f"On to {url}.")
        found.append((topic, figure, url))


def _notes(found: list[tuple[str, str, str]]) -> str:
    kept = "\n".join(f"* {topic}: {figure}" for topic, figure, _ in found[-14:])
    return (
        "## Goal\nA report for the council: are heat pumps worth it in houses from before 1940?\n\n## Constraints\n"
        f"* No figures older than 2021.\n* Never cite a page of a seller.\n\n## Found\n{kept}\n\n## Next\nThe other topics."
    )
