"""Tables as streams of Arrow: the same rows as the frames, in batches, read once."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

import ctxkit as ck
from ctxkit.metrics import FRAME_COLUMNS

ARROW = {"Int64": pa.int64(), "Float64": pa.float64(), "boolean": pa.bool_(), "string": pa.large_string(),
         "datetime64[ns, UTC]": pa.timestamp("ns", "UTC")}  # fmt: skip


@pytest.fixture(scope="module")
def sessions():
    return [ck.read(ck.samples.path("billing"))] * 3


@pytest.mark.parametrize("per", FRAME_COLUMNS)
def test_a_stream_has_the_rows_and_the_gaps_of_the_frame(per, sessions):
    reader = ck.metrics.arrow(sessions, per, sessions=2)
    assert reader.schema == pa.schema([(c.name, ARROW[c.dtype]) for c in FRAME_COLUMNS[per]])
    frame = ck.frame(sessions, per)
    got = reader.read_all().to_pandas(types_mapper={pa.large_string(): pd.StringDtype()}.get)
    assert len(got) == len(frame) > 0
    for name in frame.columns:
        assert (got[name].isna() == frame[name].isna().to_numpy()).all(), name
    assert (
        got["session"].tolist() == frame["session"].tolist()
    )  # ids are told apart over all batches


def test_batches_come_as_they_are_asked_for(sessions, monkeypatch):
    made = []
    real = ck.metrics.frames.frame
    monkeypatch.setattr(ck.metrics.frames, "frame", lambda *a, **k: made.append(1) or real(*a, **k))
    reader = ck.metrics.arrow(sessions, "call", sessions=1)
    assert len(made) == 1  # the empty one, for the schema
    assert reader.read_next_batch().num_rows == 343
    assert len(made) == 2


@pytest.mark.parametrize("per", FRAME_COLUMNS)
def test_nothing_gives_the_columns(per):
    assert ck.metrics.arrow([], per).read_all().column_names == [c.name for c in FRAME_COLUMNS[per]]


def test_the_list_of_sessions_is_a_table_and_a_list():
    found = ck.read_all(ck.samples.path("billing"))
    assert pa.table(found).to_pydict()["title"] == [s.title for s in found]
    assert pa.table(found).num_rows == 1 == pa.table(found).num_rows  # each time anew
    assert found == [found[0]]
    assert found[:1] == found


@pytest.mark.parametrize("wrong", [{"per": "cal"}, {"sessions": 0}])
def test_what_cannot_be_is_said_at_once(wrong, sessions):
    with pytest.raises(ck.BadArguments, match=r"call|at least 1"):
        ck.metrics.arrow(sessions, **wrong)
