"""The course page states the figures of the samples, the contest and the small model as they are computed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ctxkit as ck

PACKAGE = Path(ck.__file__).parent
LINES = (PACKAGE.parent / "docs/course.md").read_text(encoding="utf-8").splitlines()
PAGE = " ".join(LINES)


def test_the_contest_starts_from_the_cost_and_loss_of_the_record():
    session = ck.read(ck.samples.path("billing"))
    table = ck.compare(session, ["none"], progress=False)
    cost = table["cost_usd"].map("${:.2f}".format)
    loss = f"{table['needed_later_loss']['recorded']:.0%}".replace("%", " %")
    facts = sum(ck.course.facts_kept(session).values())
    assert (
        f"As recorded, the session costs {cost['recorded']}, keeps {facts} facts and loses {loss}."
        in PAGE
    )
    assert table["needed_later_loss"]["none"] == 0
    assert f"Never compacted, it costs {cost['none']}, loses nothing" in PAGE
    assert ck.contest().tried("none", "none").why == "runs past the window"


@pytest.mark.parametrize("path", ck.samples.paths(), ids=lambda p: Path(p).stem)
def test_the_table_of_samples_has_their_windows(path):
    session = ck.read(path)
    row = next(line for line in LINES if line.startswith(f"| `{session.id}` |"))
    assert row.endswith(f"| {session.context_window:,} |")


def test_the_small_model_has_as_many_parameters_as_stated():
    recipe = json.loads((PACKAGE / "course/pair/reader.json").read_text(encoding="utf-8"))
    assert f"a local model of {recipe['parameters']:,} parameters" in PAGE
