"""Damaged logs: whatever is done with one, no error but the kit's own comes out, and its time and memory are bounded."""

from __future__ import annotations

import time

import log_fuzzing
import pytest
from conftest import ALL, SEED
from log_fuzzing import Findings, LogBase, bases, compacted, mutant, run

import ctxkit as ck
from ctxkit.formats import all_readers, get_reader

EACH = 25
"""Mutants of the printed seed: under 8 seconds of one processor."""
CHUNK, CHUNKS = 500, 40
"""The 20,000 mutants of `make test-all`, always the same ones, in pieces that workers share."""


def test_no_error_but_its_own_comes_out_of_a_damaged_log() -> None:
    findings = run(str(SEED), range(EACH))
    assert not findings.failures, findings
    assert findings.read > EACH / 2  # some of it must have been read


@pytest.mark.long
@pytest.mark.skipif(not ALL, reason="CTXKIT_TEST_ALL=1 takes them all")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_none_comes_out_of_twenty_thousand(chunk: int) -> None:
    findings = run(log_fuzzing.SEED_OF_ALL, range(CHUNK * chunk, CHUNK * (chunk + 1)))
    assert not findings.failures, findings


def test_a_mutant_is_told_by_its_seed_and_number() -> None:
    assert mutant("x", 7).files == mutant("x", 7).files
    assert mutant("x", 7).files != mutant("x", 8).files
    assert len(compacted()) >= 9
    assert {base.format for base in bases()} >= {m.NAME for m in all_readers()} - {"crush"}


@pytest.fixture
def whole() -> LogBase:
    """A log without damage."""
    return next(base for base in bases() if "native.jsonl" in base.files)


@pytest.fixture
def one(whole: LogBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_fuzzing, "mutant", lambda seed, number: whole)


def failures(findings: Findings) -> list[tuple[str, str, str]]:
    return [(f.error, f.place, f.step) for f, _ in findings.failures.values()]


def test_a_log_without_damage_goes_through(one: None) -> None:
    findings = run("x", range(3))
    assert not findings.failures, findings
    assert (findings.run, findings.read) == (3, 3)


def test_an_error_that_is_not_the_kits_is_a_failure(one, monkeypatch) -> None:
    def report(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(ck, "report", report)
    findings = run("x", range(2))
    assert ("ZeroDivisionError: division by zero", "tests", "report") in failures(findings)
    assert [ns for _, ns in findings.failures.values()] == [[0, 0, 1, 1]]  # the rest continues
    assert "4 times, first mutants [0, 0, 1], in report" in str(findings)


def test_what_a_reader_lets_out_is_a_failure(one, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise AttributeError("no such field")

    monkeypatch.setattr(get_reader("native"), "read", fail)
    assert failures(run("x", [0]))[0][0] == "AssertionError: AttributeError in the reader"


def test_too_much_of_a_processor_is_a_failure(one, monkeypatch) -> None:
    def report(*_: object, **__: object) -> None:
        end = time.process_time() + 30
        while time.process_time() < end:
            pass

    monkeypatch.setattr(ck, "report", report)
    monkeypatch.setattr(log_fuzzing, "MOST_SECONDS", 1)
    assert failures(run("x", [0])) == [("TooSlow: more than 1 s of a processor", "tests", "all")]


@pytest.mark.skipif(not log_fuzzing.most_memory(), reason="no /proc tells what a process took")
def test_too_much_memory_is_a_failure(one, monkeypatch) -> None:
    monkeypatch.setattr(log_fuzzing, "MOST_BYTES", 100 << 20)
    monkeypatch.setattr(ck, "report", lambda *_: len(b"x" * (400 << 20)))
    assert ("MemoryError: too much", "native", "all") in failures(run("x", [0]))
