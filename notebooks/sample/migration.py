"""One change in seventy files: the window fills slowly, nothing of it is compacted, and every call reads all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.course.generator.session_recorder import ModelProfile, SessionRecorder
from sample.prose import source

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

LARGE = ModelProfile(context_window=200_000, compaction_threshold=165_000, keep_recent=20_000)
TITLE = "fetch_rows becomes select"
STARTED = 1774256400.0  # Monday 23 March 2026, 09:00 UTC
SYSTEM = (
    "You are a coding agent in one repository. Read a file before you change it, run its tests afterwards, and keep "
    "a list of what is done."
)
OLD, NEW = "api.fetch_rows", "api.select"


def play(rng: Random, count: Callable[[str], int]) -> SessionRecorder:
    """Return the recorder of two days."""
    recorder = SessionRecorder(
        SYSTEM,
        rng=rng,
        count_tokens=count,
        write_summary=lambda _: "",
        schema_tokens=1_100,
        start=STARTED,
        profile=LARGE,
    )
    recorder.add_user_message(
        f"Replace {OLD} by {NEW} in shop/. {NEW} takes `at_most` in place of `limit`. Constraint: shop/legacy/ stays as "
        "it is, it is deployed from tag v4.18.2. Note what you skip, I will ask for it.", 3.0,
    )  # fmt: skip
    names = [f"part_{i:02d}" for i in range(72)]
    recorder.add_tool_calls(
        (
            "search",
            {"pattern": OLD},
            "\n".join(f"shop/{n}.py:{rng.randrange(6, 80)}" for n in names),
            False,
        )
    )
    skipped = []
    for i, name in enumerate(names):
        path = f"shop/{name}.py"
        recorder.add_tool_calls(
            ("read_file", {"path": path}, source(rng, name, rng.randrange(11, 26), OLD), False)
        )
        if rng.random() < 0.12:
            skipped.append(path)
            recorder.add_answer(f"{path} builds the call from a string; I leave it and note it.")
            recorder.add_user_message("Good. Go on.", rng.choice((40.0, 200.0, 700.0)))
            continue
        edit = {"path": path, "old": f"{OLD}(", "new": f"{NEW}("}
        recorder.add_tool_calls(("edit", edit, f"edited {path}", False))
        recorder.add_tool_calls(
            (
                "run",
                {"command": f"pytest -q tests/test_{name}.py"},
                f"{rng.randrange(3, 30)} passed",
                False,
            )
        )
        if i == 40:
            recorder.add_answer(f"{i + 1} of {len(names)} files are done.")
            recorder.add_user_message("Good, go on tomorrow.", 54_000.0)
    recorder.add_answer(f"All done but {', '.join(skipped)}. shop/legacy/ is untouched (v4.18.2).")
    recorder.add_user_message("Now the ones that you skipped, by hand.", 400.0)
    for path in skipped:
        recorder.add_tool_calls(
            ("read_file", {"path": path}, source(rng, path[5:-3], 6, OLD), False)
        )
        recorder.add_tool_calls(
            ("edit", {"path": path, "old": "fetch_rows", "new": "select"}, f"edited {path}", False)
        )
    recorder.add_answer(f"{len(skipped)} more files are done: {', '.join(skipped)}.")
    return recorder
