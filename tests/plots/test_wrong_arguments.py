"""Whatever is given to a function of `ck.plots`: a chart, or one sentence that says what it takes."""

from __future__ import annotations

from inspect import Parameter, signature

import pandas as pd
import pytest

import ctxkit as ck
from ctxkit.errors import CtxkitError

GRID = ck.grid("pi", reserve_tokens=[4000, 9000], keep_recent_tokens=[2000, 8000])
WRONG = {
    "number": 42,
    "nothing": None,
    "object": object(),
    "missing file": "no-such-file",
    "numbers": [1],
    "dictionary": {"a": 1},
    "empty frame": pd.DataFrame(),
    "other frame": pd.DataFrame({"a": [1]}),
    "grid": GRID,
    "rules": ck.presets.pi(),
    "bytes": b"x",
    "type": dict,
    "module": ck,
}


def list_required(function) -> list[str]:
    """Return the arguments that a function cannot be called without."""
    return [
        p.name
        for p in signature(function).parameters.values()
        if p.default is p.empty and p.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    ]


@pytest.mark.parametrize("name", ck.plots.__all__)
def test_a_chart_is_made_of_one_argument(name):
    assert len(list_required(getattr(ck.plots, name))) == 1


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", ck.plots.__all__)
def test_a_wrong_object_is_answered_in_one_sentence(name, wrong):
    with pytest.raises(CtxkitError) as refused:
        getattr(ck.plots, name)(WRONG[wrong])
    answer = str(refused.value)
    assert answer.rstrip().endswith((".", "?"))
    assert len(answer) < 300
    assert "\n" not in answer


@pytest.mark.parametrize("wrong", [42, GRID, pd.DataFrame()])
def test_a_heat_map_of_settings_that_are_no_names_is_refused_in_one_sentence(wrong):
    runs = ck.sweep(ck.samples.path("chat"), GRID, progress=False)
    with pytest.raises(CtxkitError, match="takes the names of two settings"):
        ck.plots.heatmap(runs, wrong, "reserve_tokens")


def test_a_heat_map_takes_the_two_settings_that_vary_and_asks_where_there_are_more():
    runs = ck.sweep(ck.samples.path("chat"), GRID, progress=False)
    both = ck.plots.heatmap(runs, "reserve_tokens", "keep_recent_tokens")
    assert ck.plots.heatmap(runs) == both
    assert ck.plots.heatmap(runs, y="reserve_tokens").title == (
        "cost_usd over keep_recent_tokens and reserve_tokens"
    )
    one = ck.sweep(ck.samples.path("chat"), ["pi"], progress=False)
    with pytest.raises(CtxkitError, match="two settings as x and y; in these runs vary: none"):
        ck.plots.heatmap(one)
