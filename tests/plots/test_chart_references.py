"""Every chart draws what its reference shows: text, plotly figure and static page.

The references hold the look (order, names, formats, hovers, geometry), which no figure worked out
by hand says; whether a figure is right is tested beside its data. A change on purpose is written
down by `python tests/plots/chart_scenarios.py`.
"""

from __future__ import annotations

import pytest
from plots.chart_scenarios import REFERENCES, SCENARIOS, get_reference, write_forms

import ctxkit as ck


def test_every_public_chart_has_a_reference():
    assert {name.split()[0] for name in SCENARIOS} == {
        name for name in ck.plots.__all__ if callable(getattr(ck.plots, name))
    }
    assert {p.name for p in REFERENCES.iterdir()} == {get_reference(n).name for n in SCENARIOS}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_chart_is_that_of_its_reference(name):
    drawn = write_forms(SCENARIOS[name]()).splitlines()
    expected = get_reference(name).read_text(encoding="utf-8").splitlines()
    changed = [(a, b) for a, b in zip(expected, drawn, strict=False) if a != b][:3]
    assert (changed, len(drawn)) == ([], len(expected))
