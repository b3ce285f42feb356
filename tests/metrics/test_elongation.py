"""A run that wrote summaries can be taken to be longer; all others stay as they were."""

from __future__ import annotations

import pandas as pd
import pytest

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics.elongation import elongated


@pytest.fixture(scope="module")
def runs():
    return ck.compare(ck.read(ck.samples.path()), ["none", ck.presets.pi(summariser="fixed"), "strands"])


def test_only_runs_with_summaries_get_longer(runs):
    was, now = runs.loc["pi"], elongated(runs).loc["pi"]
    for name in ("calls_n", "prompt_tokens", "output_tokens", "input_usd", "output_usd"):
        assert now[name] == pytest.approx(1.15 * was[name], abs=0.5), name
    assert now["cost_usd"] == pytest.approx(1.15 * (was["input_usd"] + was["output_usd"]) + was["summaries_usd"])
    assert (now["source"], now["peak_tokens"], now["cuts_n"]) == ("estimated", was["peak_tokens"], was["cuts_n"])
    pd.testing.assert_frame_equal(elongated(runs).drop("pi"), pd.DataFrame(runs).drop("pi"))


def test_no_share_changes_nothing_and_nonsense_is_refused(runs):
    pd.testing.assert_frame_equal(elongated(runs, 0), pd.DataFrame(runs))
    with pytest.raises(BadArguments, match="0 or more"):
        elongated(runs, -0.1)
    with pytest.raises(BadArguments, match="sweep or compare"):
        elongated(pd.DataFrame({"a": [1]}))
