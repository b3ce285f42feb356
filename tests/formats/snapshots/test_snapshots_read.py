"""Reading snapshot logs: the schema, damage, what is kept, what is selected."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pandas as pd
import pytest
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshot_logs import MARKER, ROW, records, text

import ctxkit as ck
from ctxkit.errors import BadArguments, ReadError
from ctxkit.formats.snapshots.column_blocks_and_faults import (
    SNAPSHOT_FIELDS,
    FaultCollector,
    block_to_frame,
    new_text_codes,
)
from ctxkit.formats.snapshots.lines_to_columns import parse_lines_one_by_one, parse_with_arrow


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CTXKIT_CACHE_DIR", str(folder))
    return folder


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def reasons(frame):
    return [(Path(f.file).name, f.line, f.kept) for f in frame.attrs["faults"]]


def test_a_line_becomes_a_row_of_the_fixed_schema(tmp_path):
    df = ck.read_snapshots(
        write(tmp_path / "ctx_snapshots_77d6be00.jsonl", ROW + "\n" + MARKER + "\n")
    )
    assert tuple(df.columns) == SNAPSHOT_FIELDS
    assert [str(t) for t in df.dtypes[3:]] == ["Int64"] * 6 + ["boolean"]
    assert df["ts"][0] == pd.Timestamp("2026-09-19T00:26:34.0091413Z")
    assert df.iloc[0, 1:].to_list() == [
        "77d6be00",
        "Developer",
        3,
        41250,
        1830,
        96210,
        60000,
        100000,
        False,
    ]
    assert df["agent"].to_list() == ["Developer", "system"]
    assert df["compaction_occurred"].to_list() == [False, True]
    assert df["warn_at"].isna().to_list() == [False, True]
    assert df.attrs["faults"] == ()


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_columns_equal_a_plain_json_reading(tmp_path, cache, separators):
    rows = records(1000)
    rows[500:500] = [json.loads(MARKER)] * 3
    path = write(
        tmp_path / "a.jsonl", "".join(json.dumps(r, separators=separators) + "\n" for r in rows)
    )
    df = ck.read_snapshots(path, cache=cache)
    for name in SNAPSHOT_FIELDS[1:9]:
        assert [None if pd.isna(v) else v for v in df[name].to_list()] == [
            r.get(name) for r in rows
        ]
    assert df["ts"].to_list() == [pd.Timestamp(r["ts"]) for r in rows]
    assert df.attrs["faults"] == ()


def test_folders_of_both_layouts_files_and_patterns(tmp_path):
    write(tmp_path / ".fuseraft/logs/ctx_snapshots_77d6be00.jsonl", ROW + "\n")
    write(tmp_path / "home/logs/sessions/my-lab/0000abcd/ctx_snapshots.jsonl", ROW + "\n")
    write(tmp_path / "home/logs/sessions/my-lab/0000abcd/events.jsonl", "{}\n")
    assert len(ck.read_snapshots(tmp_path)) == 2
    assert len(ck.read_snapshots(str(tmp_path / "**" / "ctx_*_*.jsonl"))) == 1
    assert len(ck.read_snapshots([tmp_path, tmp_path / "home"])) == 2  # each file once


@pytest.mark.parametrize("name", ["nothing.jsonl", "*.nothing", "empty"])
def test_what_names_nothing_is_an_error(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReadError):
        ck.read_snapshots(tmp_path / name)


def test_wrong_arguments_are_told(tmp_path):
    path = write(tmp_path / "a.jsonl", ROW + "\n")
    for more in (
        {"columns": ["agnet"]},
        {"columns": "agent"},
        {"where": {"agnet": 1}},
        {"where": 5},
    ):
        with pytest.raises(BadArguments):
            ck.read_snapshots(path, **more)
    with pytest.raises(BadArguments, match="one truth value"):
        ck.read_snapshots(path, where=lambda f: f["turn"])
    with pytest.raises(BadArguments):
        ck.read_snapshots(5)


# -- damage: the fifteen kinds -----------------------------------------------------------------------------------------

GOOD = text(records(1000))
LATE = text(records(2000)[1000:])
R0 = records(1)[0]


def line(**changes):
    return json.dumps({**R0, **changes}, separators=(",", ":")) + "\n"


def without(name):
    return text([{k: v for k, v in r.items() if k != name} for r in records(1000)])


CASES = {
    "torn last line": ([GOOD + ROW[:57]], 1000, [("0.jsonl", 1001, False)]),
    "torn last line, then another file": (
        [GOOD + ROW[:57], LATE],
        2000,
        [("0.jsonl", 1001, False)],
    ),
    "no final newline": ([GOOD.rstrip("\n")], 1000, []),
    "blank lines": ([GOOD.replace("\n", "\n\n", 5)], 1000, []),
    "garbage in the middle": (
        [GOOD + "Traceback: boom\n" + GOOD],
        2000,
        [("0.jsonl", 1001, False)],
    ),
    "unknown field late": ([GOOD + line(new_field={"a": [1, 2]})], 1001, [("0.jsonl", 1001, True)]),
    "extra field only in file 2": (
        [GOOD, text([{**r, "cache_read": 5} for r in records(1000)])],
        2000,
        [("1.jsonl", 1, True)],
    ),
    "field missing in file 2": (
        [GOOD, without("turn_output_tokens")],
        2000,
        [("1.jsonl", 1, True)],
    ),
    "int becomes float or text in file 2": (
        [
            GOOD,
            text(
                [
                    {**r, "turn": str(r["turn"]), "turn_input_tokens": r["turn"] + 0.5}
                    for r in records(10)
                ]
            ),
        ],
        1010,
        [("1.jsonl", 1 + i // 2, True) for i in range(20)],
    ),
    "all-null column then text": (
        [text([{**r, "session": None} for r in records(1000)]) + line(session="x")],
        1001,
        [],
    ),
    "int beyond 2**63": (
        [GOOD + line(turn_input_tokens=2**63 + 1)],
        1001,
        [("0.jsonl", 1001, True)],
    ),
    "byte-order mark": (["\ufeff" + GOOD], 1000, []),
    "NaN literal": (
        [GOOD + line().replace('"turn":0', '"turn":NaN')],
        1001,
        [("0.jsonl", 1001, True)],
    ),
    "empty file beside a good one": (["", GOOD], 1000, []),
    "numeric-looking ids": (
        [text([{**r, "session": f"{i:06d}"} for i, r in enumerate(records(100))])],
        100,
        [],
    ),
}


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_every_whole_line_is_kept_and_every_bad_one_has_its_place(tmp_path, case, cache):
    contents, n, places = CASES[case]
    paths = [write(tmp_path / f"{i}.jsonl", c) for i, c in enumerate(contents)]
    for _ in range(2):
        df = ck.read_snapshots(paths, cache=cache)
        assert len(df) == n
        assert reasons(df) == places


def test_ids_stay_text_and_broken_values_are_missing(tmp_path):
    contents, _, _ = CASES["numeric-looking ids"]
    assert ck.read_snapshots(write(tmp_path / "i.jsonl", contents[0]))["session"][12] == "000012"
    df = ck.read_snapshots(
        write(tmp_path / "n.jsonl", line(turn="7", turn_input_tokens=12.5, turn_output_tokens=3.0))
    )
    assert df["turn"][0] == 7
    assert pd.isna(df["turn_input_tokens"][0])
    assert df["turn_output_tokens"][0] == 3


@pytest.mark.parametrize(
    "bad",
    [
        "null",
        "[1]",
        "5",
        "{}",
        '{"a":1}',
        "[" * 100_000,
        '{"turn":' + "9" * 5000 + "}",
        "\x00\x00",
        '"x"',
        "// note",
    ],
)
def test_lines_that_are_no_snapshots_are_set_aside(tmp_path, bad):
    df = ck.read_snapshots(write(tmp_path / "a.jsonl", ROW + "\n" + bad + "\n" + ROW + "\n"))
    assert len(df) == 2
    assert reasons(df) == [("a.jsonl", 2, False)]


def test_two_lines_run_together_are_both_kept_where_whole(tmp_path):
    df = ck.read_snapshots(write(tmp_path / "a.jsonl", ROW[:60] + ROW + "\n" + ROW + ROW + "\n"))
    assert len(df) == 3
    assert reasons(df) == [("a.jsonl", 1, True), ("a.jsonl", 2, True)]


def test_bytes_that_are_no_text_and_half_surrogates(tmp_path):
    bad = (
        ROW.replace("Developer", "Dev\\ud800").encode()
        + b"\n"
        + ROW.encode().replace(b"Dev", b"\xff\xfe")
        + b"\n"
    )
    df = ck.read_snapshots(write(tmp_path / "a.jsonl", ROW.encode() + b"\n" + bad))
    assert df["agent"].to_list() == ["Developer", "Dev?"]
    assert reasons(df) == [("a.jsonl", 2, True), ("a.jsonl", 3, False)]


@given(st.data())
def test_any_damage_leaves_the_other_lines_alone(tmp_path_factory, data):
    lines = text(records(40)).encode().splitlines(keepends=True)
    k = data.draw(st.integers(0, 39))
    where = data.draw(st.integers(0, len(lines[k]) - 2))
    broken = bytearray(lines[k])
    broken[where] = data.draw(st.integers(0, 255).filter(lambda b: b not in (10, broken[where])))
    path = write(
        tmp_path_factory.mktemp("d") / "a.jsonl",
        b"".join([*lines[:k], bytes(broken), *lines[k + 1 :]]),
    )
    df = ck.read_snapshots(path, cache=False)
    assert len(df) in (39, 40)
    kept = df["turn"].to_list()[:k] + df["turn"].to_list()[len(df) - 39 + k :]
    assert kept == [i for i in range(40) if i != k]
    assert len(df) == 40 or (k + 1, False) in [(f.line, f.kept) for f in df.attrs["faults"]]


# -- what is kept ------------------------------------------------------------------------------------------------------


def same(path):
    """The frame from the cache, which must equal one that is read again."""
    found = ck.read_snapshots(path)
    fresh = ck.read_snapshots(path, cache=False)
    pd.testing.assert_frame_equal(found, fresh)
    assert found.attrs["faults"] == fresh.attrs["faults"]
    return found


def test_a_torn_line_is_picked_up_when_it_is_finished(tmp_path):
    path = write(tmp_path / "a.jsonl", GOOD + ROW[:57])
    assert len(same(path)) == 1000
    with path.open("a") as f:
        f.write(ROW[57:] + "\n" + MARKER)
    df = same(path)
    assert len(df) == 1002
    assert df["session"][1000] == "77d6be00"
    with path.open("a") as f:
        f.write("\n" + ROW + "\n")
    assert len(same(path)) == 1003


def test_growth_in_steps_gives_what_one_reading_gives(tmp_path):
    lines = (text(records(150)) + MARKER + "\n" + "boom\n" + text(records(50, seed=2))).splitlines(
        keepends=True
    )
    path = write(tmp_path / "a.jsonl", "")
    for start in range(0, len(lines), 37):
        with path.open("a") as f:
            f.writelines(lines[start : start + 37])
        same(path)
    assert len(same(path)) == 201


def test_a_log_that_grows_before_the_last_keeps_the_order_of_files(tmp_path, own_cache):
    for i in (1, 3):
        write(tmp_path / f"ctx_snapshots_{i}.jsonl", text(records(100, seed=i)))
    same(tmp_path)
    with (tmp_path / "ctx_snapshots_1.jsonl").open("a") as f:
        f.write(ROW + "\n")
    generations = []
    for _ in range(4):
        generations.append({f.parent.name for f in own_cache.rglob("turn.*.bin")})
        assert same(tmp_path)["session"][100] == "77d6be00"
    first, gathered, in_order, mapped = generations
    assert first == gathered != in_order == mapped  # one new line does not write all rows again
    write(tmp_path / "ctx_snapshots_2.jsonl", MARKER + "\n")
    for _ in range(3):
        assert same(tmp_path)["agent"][101] == "system"


@pytest.mark.parametrize(
    "content", [b"", b"\n", ROW[:9].encode(), ("\ufeff" + ROW).encode("utf-16-le")]
)
def test_logs_without_a_row_have_the_columns_all_the_same(tmp_path, content):
    path = write(tmp_path / "a.jsonl", content)
    df = same(path)
    assert len(df) == 0
    assert df.columns.to_list() == list(SNAPSHOT_FIELDS)
    path.write_text(ROW + "\n")
    assert same(path)["session"].to_list() == ["77d6be00"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_and_a_lost_link_in_a_folder_are_told_and_not_waited_for(tmp_path):
    write(tmp_path / "ctx_snapshots_1.jsonl", ROW + "\n")
    os.mkfifo(tmp_path / "ctx_snapshots_2.jsonl")
    (tmp_path / "ctx_snapshots_3.jsonl").symlink_to(tmp_path / "gone")
    for _ in range(2):
        df = same(tmp_path)
        assert len(df) == 1
        assert [(f.line, f.kept) for f in df.attrs["faults"]] == [(0, False)] * 2


def test_more_sessions_than_narrow_codes_hold(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        text([{**r, "session": f"{i:04d}"} for i, r in enumerate(records(120))]),
    )
    same(path)
    with path.open("a") as f:
        f.write(text([{**r, "session": f"{i + 120:04d}"} for i, r in enumerate(records(200))]))
    assert same(path)["session"].to_list() == [f"{i:04d}" for i in range(320)]


def test_a_log_that_was_rewritten_is_read_again(tmp_path):
    path = write(tmp_path / "a.jsonl", GOOD)
    same(path)
    before = path.stat()
    path.write_text(GOOD.replace('"turn":5,', '"turn":6,'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert same(path)["turn"][5] == 6
    path.write_text(LATE)
    same(path)
    path.write_text(GOOD[:1000])
    same(path)
    path.write_text(LATE + LATE)
    assert len(same(path)) == 2000


def test_a_log_that_is_gone_is_gone(tmp_path):
    for i in range(3):
        write(tmp_path / f"ctx_snapshots_{i}.jsonl", text(records(10, seed=i)))
    assert len(same(tmp_path)) == 30
    (tmp_path / "ctx_snapshots_1.jsonl").unlink()
    assert len(same(tmp_path)) == 20


def test_the_cache_is_private_and_logs_are_not_touched(tmp_path, own_cache):
    path = write(tmp_path / "logs" / "a.jsonl", GOOD)
    ck.read_snapshots(path)
    assert [f.name for f in path.parent.iterdir()] == ["a.jsonl"]
    files = [f for f in own_cache.rglob("*") if f.is_file()]
    assert len(files) > 10
    assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}


@pytest.mark.parametrize("damage", ["index", "short", "gone", "folder", "lie"])
def test_a_damaged_cache_costs_time_only(tmp_path, own_cache, damage):
    path = write(tmp_path / "a.jsonl", GOOD)
    ck.read_snapshots(path)
    index = next(own_cache.rglob("index.jsonl"))
    column = next(own_cache.rglob("turn.int64.bin"))
    if damage == "index":
        index.write_bytes(b'{"logs": 5}')
    elif damage == "short":
        column.write_bytes(b"1234")
    elif damage == "gone":
        column.unlink()
    elif damage == "lie":
        index.write_text(index.read_text().replace('"rows":1000', '"rows":999'))
    else:
        for f in sorted(own_cache.rglob("*"), reverse=True):
            f.rmdir() if f.is_dir() else f.unlink()
    for _ in range(2):
        assert len(same(path)) == 1000


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path):
    blocked = write(tmp_path / "file", "")
    path = write(tmp_path / "a.jsonl", GOOD)
    assert len(ck.read_snapshots(path, cache=blocked / "cache")) == 1000


def test_a_frame_is_the_users_own(tmp_path):
    path = write(tmp_path / "a.jsonl", GOOD)
    df = ck.read_snapshots(path)
    df.loc[:, "turn"] = 0
    df["agent"] = "x"
    same(path)


def test_the_frame_travels(tmp_path):
    df = ck.read_snapshots(write(tmp_path / "a.jsonl", GOOD + "boom\n"))
    both = pd.concat([df, df.copy()])
    both.to_parquet(tmp_path / "a.parquet")
    assert df.attrs["faults"].frame.columns.to_list() == ["file", "line", "why", "kept"]
    assert both.attrs["faults"] == df.attrs["faults"]


# -- what is selected --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize(
    "where",
    [
        lambda f: (f["agent"] == "Reviewer") & (f["turn"] > 500),
        {"agent": "Reviewer", "turn": slice(501, None)},
        {"agent": ["Reviewer"], "turn": lambda turn: turn > 500},
    ],
)
def test_conditions_and_columns_select(tmp_path, where, cache):
    path = write(tmp_path / "a.jsonl", GOOD)
    whole = ck.read_snapshots(path)
    wanted = whole[(whole["agent"] == "Reviewer") & (whole["turn"] > 500)]
    df = ck.read_snapshots(path, ["turn", "agent"], where, cache=cache)
    assert df.columns.to_list() == ["turn", "agent"]
    assert df["turn"].to_list() == wanted["turn"].to_list()
    assert df["agent"].cat.categories.to_list() == ["Reviewer"]


def test_missing_values_fit_no_condition(tmp_path):
    path = write(tmp_path / "a.jsonl", ROW + "\n" + MARKER + "\n")
    assert len(ck.read_snapshots(path, where={"warn_at": slice(None, None)})) == 1
    assert len(ck.read_snapshots(path, where=lambda f: f["warn_at"] > 0)) == 1
    assert len(ck.read_snapshots(path, where={"compaction_occurred": True})) == 1
    assert len(ck.read_snapshots(path, where={"agent": "nobody"})) == 0


# -- many lines at once give what single lines give --------------------------------------------------------------------

PIECES = [
    b"null",
    b"1e3",
    b"-",
    b"00",
    b"0x1",
    b"{",
    b"}",
    b"[",
    b'"',
    b",",
    b"\n",
    b" ",
    b"\xff",
    b"9" * 25,
    b'"turn":',
    b"\\",
]


@settings(max_examples=examples(100))
@given(st.data())
def test_bulk_reads_what_single_lines_give_or_nothing(data):
    content = (text(records(6)) + MARKER + "\n" + ROW).encode()
    at = data.draw(st.integers(0, len(content) - 1))
    content = (
        content[:at]
        + data.draw(st.sampled_from(PIECES))
        + content[at + data.draw(st.integers(0, 9)) :]
        + b"\n"
    )
    at_once, singly, report = new_text_codes(), new_text_codes(), FaultCollector()
    bulk = parse_with_arrow(content, content.count(b"\n"), at_once)
    if bulk is not None:
        lines = parse_lines_one_by_one(content, "a", 1, singly, report)
        assert report.faults == []
        for names in (SNAPSHOT_FIELDS[:1], SNAPSHOT_FIELDS[3:]):
            pd.testing.assert_frame_equal(
                block_to_frame(bulk, at_once, names), block_to_frame(lines, singly, names)
            )
        for name in ("session", "agent"):
            assert list(block_to_frame(bulk, at_once)[name]) == list(
                block_to_frame(lines, singly)[name]
            )


def test_lines_of_many_kinds_are_read_at_once():
    kinds = [
        text(records(30)),
        (MARKER + "\n") * 20,
        text([{k: v for k, v in r.items() if k != "warn_at"} for r in records(9)]),
    ]
    kinds.append(text([dict(reversed(r.items())) for r in records(5)]))
    content = "".join(kinds).encode()
    bulk = parse_with_arrow(content, 64, new_text_codes())
    assert bulk is not None
    assert bulk["turn"].tolist() == [*range(30), *[4] * 20, *range(9), *range(5)]


@pytest.mark.parametrize("name", ["session_id", "sessionId", "conversation_id"])
@pytest.mark.parametrize("cache", [True, False])
def test_a_session_under_another_name_is_the_session(tmp_path, name, cache):
    rows = [ROW.replace('"session"', f'"{name}"')] * 3
    rows += [row.replace("77d6be00", "b2") for row in rows[:2]]
    log = write(tmp_path / "ctx_snapshots.jsonl", "\n".join(rows) + "\n")
    frame = ck.read_snapshots(log, cache=cache)
    assert frame["session"].tolist() == ["77d6be00"] * 3 + ["b2"] * 2
    assert [(f.line, f.why, f.kept) for f in frame.attrs["faults"]] == [
        (1, f"`{name}` was read as `session`", True)
    ]


def test_a_session_that_has_its_own_name_wins_over_another(tmp_path):
    both = ROW.replace('"agent"', '"session_id":"other","agent"')
    frame = ck.read_snapshots(write(tmp_path / "ctx_snapshots.jsonl", both + "\n"), cache=False)
    assert frame["session"].tolist() == ["77d6be00"]
    assert "`session_id` is no known field" in frame.attrs["faults"][0].why


@pytest.mark.parametrize(("zeros", "tokens"), [(19, 7), (20, None)])
def test_a_number_in_quotes_has_at_most_20_characters(tmp_path, zeros, tokens):
    row = json.dumps(json.loads(ROW) | {"turn_input_tokens": "0" * zeros + "7"})
    df = ck.read_snapshots(write(tmp_path / "ctx_snapshots_1.jsonl", row + "\n"))
    assert df["turn_input_tokens"].tolist() == [pd.NA if tokens is None else tokens]
