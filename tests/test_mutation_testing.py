"""`make mutants` and `make quick`: which faults are planted, and which tests a change reaches."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from benchmarks.mutation_operators import plant_fault
from benchmarks.mutation_testing import Runner, _Reporter, cut_to_change, draw_faults
from benchmarks.tests_by_line import (
    ROOT,
    LineMap,
    choose_tests,
    collect_tests,
    get_bound_names,
    get_changed_lines,
    get_function_lines,
    get_new_lines,
    is_defined,
    to_lines,
    to_mask,
)


def list_faults(line: str, indent: int = 1) -> set[tuple[str, str]]:
    """Return the kinds and results of all faults of a line in a function (or outside, without indent)."""
    text = f"def f():\n    {line}\n" if indent else f"{line}\n"
    found = set()
    for seed in range(60):
        fault = plant_fault(text, 2 if indent else 1, random.Random(seed))
        if fault is not None:
            found.add((fault.kind, fault.after))
    return found


@pytest.mark.parametrize(
    ("line", "kind", "after"),
    [
        ("return a < b", "comparison", "return a <= b"),
        ("return a < b", "comparison", "return a >= b"),
        ("return a", "return None", "return None"),
        ("x = a / b", "arithmetic", "x = a * b"),
        ("x = a and b", "and/or", "x = a or b"),
        ("x = not a", "not removed", "x = a"),
        ("x = a if b else c", "not added", "x = a if not b else c"),
        ("x = [a for a in b if a]", "not added", "x = [a for a in b if not a]"),
        ("x = 4000", "constant", "x = 4001"),
        ("x = 0.5", "constant", "x = 1.0"),
        ("x = g(key=True)", "constant", "x = g(key=False)"),
        ("x = g(a, b)", "arguments swapped", "x = g(b, a)"),
        ("g(a)", "dropped", "pass"),
        ("x += a", "dropped", "pass"),
        ("x = ['tokens', 'chars']", "column swapped", "x = ['chars', 'tokens']"),
        ("x = {'a': b, 'c': d}", "column swapped", "x = {'c': b, 'a': d}"),
        ("x = f['a'] - f['b']", "column swapped", "x = f['b'] - f['b']"),
    ],
)
def test_each_kind_of_fault_is_planted(line, kind, after):
    assert (kind, after) in list_faults(line)


def test_a_default_is_a_constant_outside_a_function():
    fault = plant_fault("class A:\n    keep_last: int = 3\n", 2, random.Random(0))
    assert (fault.kind, fault.after, fault.names) == (
        "constant",
        "keep_last: int = 4",
        ("keep_last",),
    )
    assert not fault.in_function
    assert plant_fault("def f(a=1):\n    pass\n", 1, random.Random(0)).after == "def f(a=2):"


@pytest.mark.parametrize(
    ("line", "indent"),
    [
        ("max(a, b)", 0),
        ("x = min(a, b)", 0),
        ("with suppress(a, b): pass", 0),
        ("x = {'a', 'b'}", 0),
        ("frozenset(('a', 'b'))", 0),
        ("class A(Struct, frozen=True): pass", 0),
        ("__all__ = ['a', 'b']", 0),
        ("x = dict(zip(a, a, strict=True))", 0),
        ("x = lru_cache(maxsize=64)", 0),
        ("x: 'list[1]'", 1),
        ("'Return 3 < 4.'", 1),
        ("if TYPE_CHECKING: import a", 0),
        ("x = f'{a}' + b", 0),
        ("return None", 1),
    ],
)
def test_what_makes_no_difference_is_not_planted(line, indent):
    assert list_faults(line, indent) == set()


def test_the_order_of_what_is_searched_is_not_changed():
    assert {kind for kind, _ in list_faults("return a in ('b', 'c')")} == {"comparison", "return None"}  # fmt: skip


def test_tests_fail_in_a_process_with_the_fault_and_pass_in_one_without_it(tmp_path):
    good, bad = tmp_path / "test_good.py", tmp_path / "test_bad.py"
    good.write_text(
        "from ctxkit.errors import short_repr\ndef test(): assert short_repr(5) == '5'\n"
    )
    bad.write_text("def test(): assert False\n")
    file, source = "ctxkit/errors.py", (ROOT / "ctxkit/errors.py").read_text(encoding="utf-8")
    assert "def short_repr" in source
    assert run_child([str(good)], (file, source))[0] == "survived"
    verdict, by, _ = run_child([str(good)], (file, source.replace("def short_repr", "def repr_2")))
    assert (verdict, "test_good" in by) == ("noticed", True)
    assert run_child([str(bad)], None)[0] == "noticed"


def test_a_test_that_was_renamed_since_the_recording_is_left_out():
    """Pytest runs none of the tests that it is given if one of them is gone."""
    here = "tests/test_mutation_testing.py"
    name = f"{here}::test_what_makes_no_difference_is_not_planted"
    good, gone, other_case = f"{name}[max(a, b)-0]", f"{here}::test_gone", f"{name}[gone]"
    line_map = LineMap(dict.fromkeys((good, gone, other_case), 1.0), {good: {}, gone: {}})
    line_map.filter_tests(is_defined)
    assert list(line_map.seconds) == [good, other_case]
    line_map.filter_tests(collect_tests([here, "tests/gone.py"]).__contains__)
    assert (list(line_map.seconds), list(line_map.lines)) == ([good], [good])


def test_tests_of_a_change_are_those_that_exist_and_reach_few_lines_as_long_as_time_is_left():
    here = "tests/test_mutation_testing.py::"
    few, more, most, gone = (
        here + name
        for name in (
            "test_the_order_of_what_is_searched_is_not_changed",
            "test_what_makes_no_difference_is_not_planted[max(a, b)-0]",
            "test_a_test_that_was_renamed_since_the_recording_is_left_out",
            "test_gone",
        )
    )
    line_map = make_map(**{gone: [1], most: [1, 2, 3], few: [1], more: [1, 2]})
    assert choose_tests(line_map, set(line_map.seconds), 1.0) == [few, more, most]
    assert choose_tests(line_map, set(line_map.seconds), 0.25) == [few, more]
    assert choose_tests(line_map, {gone}, 1.0) == []


def run_child(tests, fault):
    """Run tests in a new process that has not loaded the kit, as the workers of `make mutants` do."""
    code = (
        "import json, sys; from benchmarks.mutation_testing import run_in_fork;"
        "print(json.dumps(run_in_fork(*json.loads(sys.stdin.read()), 120)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps([tests, fault]), cwd=ROOT,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def make_map(**lines) -> LineMap:
    """Return a map of one file whose tests reach these lines."""
    return LineMap(
        seconds=dict.fromkeys(lines, 0.1),
        lines={t: {"ctxkit/errors.py": to_mask(n)} for t, n in lines.items()},
        texts={"ctxkit/errors.py": (ROOT / "ctxkit/errors.py").read_text(encoding="utf-8")},
    )


def test_tests_that_reach_few_lines_run_first():
    text = make_map().texts["ctxkit/errors.py"]
    line = min(get_function_lines(text))
    line_map = make_map(wide=[*range(1, 60), line], narrow=[line], elsewhere=[line + 1])
    runner = Runner(line_map, 10)
    fault = plant_fault(f"def f():{chr(10) * (line - 1)}    return 3", line, random.Random(1))
    assert runner.find_tests("ctxkit/errors.py", fault) == ["narrow", "wide"]


def test_a_default_is_tried_by_the_tests_that_run_its_function():
    """`used` reaches a line of the kit that names the function; `called` calls it from a test."""
    text = make_map().texts["ctxkit/errors.py"].splitlines()
    signature = next(n for n, s in enumerate(text, 1) if "overflow: bool = False" in s)
    body = next(n for n, s in enumerate(text, 1) if "self.overflow, self.again" in s)
    use = next(n for n, s in enumerate(text, 1) if "super().__init__(why, self.path, line)" in s)
    fault = plant_fault("\n".join(text), signature, random.Random(1))
    assert "def __init__" in fault.before
    assert not fault.in_function
    line_map = make_map(called=[body], used=[use], elsewhere=[use - 1])
    assert set(Runner(line_map, 10).find_tests("ctxkit/errors.py", fault)) == {"called", "used"}


def run_on_fault(*tests):
    """Return the verdict on a fault that these tests reach, and the test that noticed it."""
    line = min(get_function_lines(make_map().texts["ctxkit/errors.py"]))
    fault = plant_fault(f"def f():{chr(10) * (line - 1)}    return 3", line, random.Random(1))
    runner = Runner(make_map(**{t: [line] for t in tests}), 10)
    outcome = runner.try_fault("errors", 0, "ctxkit/errors.py", fault)
    return outcome.verdict, outcome.by


def test_a_fault_is_noticed_only_by_a_test_that_passes_without_it(monkeypatch):
    """A test that fails anyway is left out: the others decide, and without others there is no test."""

    def run_in_fork(tests, fault, seconds):
        failed = [t for t in tests if t == "broken" or (t == "sharp" and fault)]
        return ("noticed", failed[0], 0) if failed else ("survived", "", len(tests))

    monkeypatch.setattr("benchmarks.mutation_testing.run_in_fork", run_in_fork)
    assert run_on_fault("broken", "sharp") == ("noticed", "sharp")
    assert run_on_fault("broken", "blind") == ("survived", "")
    assert run_on_fault("broken") == ("no test", "")
    monkeypatch.setattr("benchmarks.mutation_testing.FIRST_TESTS", 1)
    assert run_on_fault("blind", "broken") == ("survived", "")
    assert run_on_fault("broken", "sharp") == ("noticed", "sharp")


def test_a_fault_that_breaks_the_import_of_a_file_of_tests_is_noticed(monkeypatch):
    """The file must be imported without the fault, whether or not one of its tests fails there."""

    def run_in_fork(tests, fault, seconds):
        files = {t.partition("::")[0] for t in tests}
        broken_files = [
            f for f in ("gone.py", "sharp.py") if f in files and (fault or f == "gone.py")
        ]
        if broken_files:
            return "noticed", f"collection of {broken_files[0]}", 0
        failed = [t for t in tests if t == "sharp.py::broken" and "--collect-only" not in tests]
        return ("noticed", failed[0], 0) if failed else ("survived", "", len(tests))

    monkeypatch.setattr("benchmarks.mutation_testing.run_in_fork", run_in_fork)
    noticed = ("noticed", "collection of sharp.py")
    assert run_on_fault("sharp.py::broken", "sharp.py::other") == noticed
    assert run_on_fault("gone.py::a", "gone.py::b", "sharp.py::other") == noticed
    assert run_on_fault("gone.py::a", "blind.py::a") == ("survived", "")
    assert run_on_fault("gone.py::a") == ("no test", "")


def test_the_failed_import_of_a_file_of_tests_is_reported_by_the_name_of_the_file(tmp_path):
    (tmp_path / "test_import.py").write_text("raise ImportError\n\n\ndef test(): pass\n")
    reporter = _Reporter()
    arguments = ["-p", "no:cacheprovider", "-p", "no:nbval", f"{tmp_path}/test_import.py::test"]
    pytest.main([*arguments, "--rootdir", str(tmp_path)], plugins=[reporter])
    assert reporter.failed == "collection of test_import.py"


def test_the_same_seed_draws_the_same_faults():
    line_map = make_map(a=range(1, 200))
    line_map.texts = {"ctxkit/errors.py": line_map.texts["ctxkit/errors.py"]}
    drawn = [f.after for _, f in draw_faults(line_map, "errors", 5, 3)]
    assert drawn == [f.after for _, f in draw_faults(line_map, "errors", 5, 3)]
    assert drawn != [f.after for _, f in draw_faults(line_map, "errors", 5, 4)]


def test_lines_are_found_again_after_a_change():
    old, new = "a\nb\nc\nd", "a\nx\ny\nc\nd"
    assert get_new_lines(old, new) == {1: 1, 2: 2, 3: 4, 4: 5}
    assert get_changed_lines(old, new) == {2, 3}
    assert get_changed_lines("a\nb\nc", "a\nc") == {1, 2}
    assert to_lines(to_mask({3, 9})) == {3, 9}


def test_a_changed_signature_or_default_binds_its_name():
    text = "LIMIT = 3\n\n\nclass A:\n    keep: int = 2\n\n    def f(self, a=1):\n        b = 4\n        return b\n"
    assert get_function_lines(text) == {8, 9}
    assert get_bound_names(text, {1}) == {"LIMIT"}
    assert get_bound_names(text, {5}) == {"keep"}
    assert get_bound_names(text, {7}) == {"f"}


def test_a_long_statement_is_cut_to_what_changed():
    before, after = cut_to_change("a" * 900 + " or b", "a" * 900 + " and b")
    assert before.endswith("a or b")
    assert after.endswith("a and b")
    assert cut_to_change("a < b", "a <= b") == ("a < b", "a <= b")
