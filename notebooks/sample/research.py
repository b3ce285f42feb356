"""Long pages, read once: what was found on the first of them stands in the report at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.course.generator.session_recorder import ModelProfile, SessionRecorder
from sample.prose import page

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

LARGE = ModelProfile(context_window=200_000, compaction_threshold=165_000, keep_recent=20_000)
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


def play(rng: Random, count: Callable[[str], int]) -> SessionRecorder:
    """Return the recorder of one day of reading."""
    found: list[tuple[str, str, str]] = []
    recorder = SessionRecorder(
        SYSTEM,
        rng=rng,
        count_tokens=count,
        write_summary=lambda _: _notes(found),
        schema_tokens=900,
        start=STARTED,
        profile=LARGE,
    )
    recorder.add_user_message(
        "Are heat pumps worth it in houses from before 1940? I need a report with sources for the council on Thursday. "
        "Constraints: no figures older than 2021, and never cite a page of a seller.", 4.0,
    )  # fmt: skip
    for topic in TOPICS:
        _look_up(recorder, rng, topic, found)
        if topic in ("noise", "insulation", "legionella"):
            recorder.add_answer(
                f"So far {len(found)} figures with a source. Next I look at what is open."
            )
            recorder.add_user_message(
                "Go on. Mind the two constraints.", rng.choice((90.0, 2_400.0))
            )
    for topic, figure, url in found[:6]:
        step = ("open", {"url": url, "find": topic}, f"...{figure}...", False)
        recorder.add_tool_calls(
            step, text=f"I check the source on {topic} once more before I cite {url}."
        )
    recorder.add_answer(
        "# Report\n\n" + "\n".join(f"* {topic}: {figure} ({url})" for topic, figure, url in found)
    )
    recorder.add_user_message("Which of these rest on one source only?", 1_900.0)
    recorder.add_answer("These: " + "; ".join(f"{topic} ({url})" for topic, _, url in found[::4]))
    return recorder


def _look_up(
    recorder: SessionRecorder, rng: Random, topic: str, found: list[tuple[str, str, str]]
) -> None:
    urls = [
        f"https://{site}.example/{topic.replace(' ', '-')}/{rng.randrange(100, 999)}"
        for site in "abcdef"
    ]
    results = "\n".join(f"{i}. {u}\n   {page(rng, topic, (), 3)}" for i, u in enumerate(urls, 1))
    asked = ("search", {"query": f"{topic} old houses measured"}, results, False)
    recorder.add_tool_calls(asked, thinking=f"What is known about {topic}?")
    for url in rng.sample(urls, 3):
        figure = f"{rng.randrange(11, 99)}.{rng.randrange(10)} % of {rng.randrange(100, 900)} houses ({topic})"
        text = page(rng, topic, (f"Measured: {figure}.",), rng.randrange(190, 300))
        recorder.add_tool_calls(("open", {"url": url}, text, False), text=f"On to {url}.")
        found.append((topic, figure, url))


def _notes(found: list[tuple[str, str, str]]) -> str:
    kept = "\n".join(f"* {topic}: {figure}" for topic, figure, _ in found[-14:])
    return (
        "## Goal\nA report for the council: are heat pumps worth it in houses from before 1940?\n\n## Constraints\n"
        f"* No figures older than 2021.\n* Never cite a page of a seller.\n\n## Found\n{kept}\n\n## Next\nThe other topics."
    )
