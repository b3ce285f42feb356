"""Settings of the kit's policies: values of a wrong type are refused in a sentence, or become the right one."""

import numpy as np
import pytest

from ctxkit.errors import BadArguments
from ctxkit.policies import (
    AdaptiveTrim,
    CacheTtl,
    Clear,
    PruneToolCalls,
    ResultOffload,
    ResultShortening,
)


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (Clear, {"keep_last": 1.5}, "needs a whole number of 0 or more for keep_last, not 1.5"),
        (Clear, {"keep_last": None}, "a whole number of 0 or more for keep_last"),
        (Clear, {"keep_last": -1}, "a whole number of 0 or more for keep_last"),
        (Clear, {"polling": 0}, "a whole number of 1 or more for polling"),
        (Clear, {"keep_last": True}, "a whole number of 0 or more for keep_last"),
        (Clear, {"keep_last": float("inf")}, "a whole number of 0 or more for keep_last"),
        (Clear, {"placeholder": None}, "needs text for placeholder"),
        (Clear, {"deny": (1,)}, "needs names for deny"),
        (CacheTtl, {"ttl_seconds": "5m"}, "needs a number for ttl_seconds"),
        (
            CacheTtl,
            {"soft_trim_ratio": float("nan")},
            "needs a number between 0 and 1 for soft_trim_ratio",
        ),
        (
            CacheTtl,
            {"hard_clear_ratio": 1.1},
            "needs a number between 0 and 1 for hard_clear_ratio",
        ),
        (ResultShortening, {"consumed_chars": 1.5}, "needs a whole number for consumed_chars"),
        (CacheTtl, {"hard_clear": 1}, "needs True or False for hard_clear"),
        (PruneToolCalls, {"tool_calls": None}, "needs text for tool_calls"),
        (
            PruneToolCalls,
            {"reasoning": "some"},
            "needs none, all or before-last-message for reasoning",
        ),
        (CacheTtl, {"ttl_seconds": float("inf")}, "needs a number for ttl_seconds"),
        (ResultShortening, {"consumed_chars": -2}, "consumed_chars of at least -1"),
        (AdaptiveTrim, {"consumed_chars": -1}, "a whole number of 0 or more for consumed_chars"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused(kind, values, words):
    with pytest.raises(BadArguments, match=words):
        kind(**values)


def test_whole_numbers_of_any_kind_become_plain_ones():
    found = (
        ResultOffload(threshold=np.int64(5)),
        ResultOffload(threshold=5.0),
        ResultOffload(threshold=5),
    )
    assert len({repr(f) for f in found}) == 1
    assert all(type(f.threshold) is int for f in found)
