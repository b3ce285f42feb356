"""Every chart draws what its reference shows: text, plotly figure and static page.

The references hold the look (order, names, formats, hovers, geometry), which no figure worked out
by hand says; whether a figure is right is tested beside its data. A change on purpose is written
down by `python tests/plots/chart_scenarios.py`.
"""

from __future__ import annotations

import pytest
from plots.chart_scenarios import (
    PICTURES,
    REFERENCES,
    SCENARIOS,
    TEXTS,
    write_forms,
    write_picture,
)
from reference_texts import get_reference, list_differences

import ctxkit as ck


def test_every_public_chart_has_a_reference():
    assert {name.split()[0] for name in SCENARIOS} - {"chart"} == {
        name for name in ck.plots.__all__ if callable(getattr(ck.plots, name))
    }
    assert {p.name for p in REFERENCES.iterdir()} == {
        get_reference(REFERENCES, name).name
        for name in [*SCENARIOS, *TEXTS, *(f"picture {name}" for name in PICTURES)]
    }


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_chart_is_that_of_its_reference(name):
    assert list_differences(REFERENCES, name, write_forms(SCENARIOS[name]())) == []


@pytest.mark.parametrize("name", PICTURES)
def test_a_static_picture_is_that_of_its_reference(name):
    assert list_differences(REFERENCES, f"picture {name}", write_picture(PICTURES[name])) == []


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_that_of_its_reference(name):
    assert list_differences(REFERENCES, name, TEXTS[name]()) == []
