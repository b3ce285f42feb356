"""The committed tables: named, sourced, small, and what `make studies` makes."""

from __future__ import annotations

import pytest
from make_studies import write_tables

from ctxkit.errors import BadArguments
from ctxkit.experiments import studies
from ctxkit.metrics import run_elongation_from_studies


def test_every_table_says_where_it_comes_from_and_is_small():
    assert studies.published_runs_and_tables.list_table_names() == [
        "floors",
        "masks",
        "ratios",
        "repeats",
    ]
    for name in studies.published_runs_and_tables.list_table_names():
        frame = studies.table(name)
        assert "MIT" in frame.attrs["source"]
        assert "commit" in frame.attrs["source"]
        assert not frame.empty
        assert (
            studies.published_runs_and_tables.TABLES_FOLDER / f"{name}.csv"
        ).stat().st_size < 30_000
    with pytest.raises(BadArguments, match="ratios"):
        studies.table("ratio")


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("masks", studies.mask_token_errors_and_visibility_exams.MASK_COLUMNS),
        ("ratios", studies.policy_ratios_and_noise_floors.RATIO_COLUMNS),
        ("floors", studies.policy_ratios_and_noise_floors.FLOOR_COLUMNS),
    ],
)
def test_the_columns_are_those_that_are_told(name, columns):
    assert list(studies.table(name).columns) == list(columns)


def test_the_floor_in_force_is_the_one_that_was_measured():
    found = studies.table("floors").set_index(["figure", "tasks"])["floor"]
    assert abs(found["usd", 50] - run_elongation_from_studies.NOISE_FLOOR) < 0.01


def test_runs_that_are_not_there_are_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXKIT_STUDIES", str(tmp_path / "none"))
    with pytest.raises(BadArguments, match="CTXKIT_STUDIES"):
        studies.published_runs_and_tables.find_published_file(
            studies.published_runs_and_tables.COMPLEXITY_TRAP
        )


@pytest.mark.long
def test_they_are_made_again_byte_by_byte(published, tmp_path):
    *made, turns = write_tables(published, tmp_path, tmp_path / "elongation.csv")
    for path in made:
        assert (
            path.read_bytes()
            == (studies.published_runs_and_tables.TABLES_FOLDER / path.name).read_bytes()
        ), path.name
    assert turns.read_bytes() == run_elongation_from_studies._STUDIES_FILE.read_bytes()


def test_the_folder_of_the_runs_is_named_or_beside_the_sessions(tmp_path, monkeypatch):
    find = studies.published_runs_and_tables.find_studies_folder
    named, beside = tmp_path / "named", tmp_path / "all/studies"
    for folder in (named, beside):
        folder.mkdir(parents=True)
    for named_value, sessions_value, found in (
        (None, None, None),
        (named, None, named),
        (None, tmp_path / "all/sessions", beside),
        (named, tmp_path / "all/sessions", named),
        (tmp_path / "none", tmp_path / "all/sessions", None),
        (None, tmp_path / "none/sessions", None),
    ):
        for name, value in (("STUDIES", named_value), ("SESSIONS", sessions_value)):
            monkeypatch.setenv(f"CTXKIT_{name}", str(value or ""))
        assert find() == found
