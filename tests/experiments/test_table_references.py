"""Every public function of experiments gives what its reference shows: columns, text and page.

Whether a figure is right is tested beside its rule; a reference holds the rest of each table. A
change on purpose is written down by `python tests/experiments/table_scenarios.py`.
"""

from __future__ import annotations

import pytest
from experiments.table_scenarios import DATA, REFERENCES, SCENARIOS, TOGETHER, write_result
from reference_texts import get_reference, list_differences

import ctxkit as ck


def test_every_public_function_has_a_reference():
    names = {name.split()[0] for name in SCENARIOS}
    public = set(ck.experiments.__all__) - DATA
    assert public - names == set().union(*TOGETHER.values())
    assert {p.name for p in REFERENCES.iterdir()} == {
        get_reference(REFERENCES, name).name for name in SCENARIOS
    }


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_table_is_that_of_its_reference(name):
    assert list_differences(REFERENCES, name, write_result(SCENARIOS[name]())) == []
