"""Pytest plugin with the fixture `ctxkit_gate` and the option ``--ctxkit-update``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.experiments.gates.regression_gate import GateReport

BASELINE_FOLDER = "baselines"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--ctxkit-update``, which writes baselines."""
    group = parser.getgroup("ctxkit")
    group.addoption(
        "--ctxkit-update",
        action="store_true",
        help="write the baselines of ctxkit_gate anew instead of holding figures against them",
    )


@pytest.fixture
def ctxkit_gate(request: pytest.FixtureRequest) -> Callable[..., GateReport]:
    """Return a function that fails the test where figures got worse than the baseline.

    ``ctxkit_gate(sessions, rules)`` takes the arguments of `ctxkit.gate`;
    ``ctxkit_gate(compact=...)`` those of `ctxkit.experiments.gates.gate_compactor`. The default of
    `baseline=` is a file named after the test, in the folder `baselines` beside the test file.
    ``pytest --ctxkit-update`` writes it.
    """
    update: bool = request.config.getoption("--ctxkit-update")
    name = re.sub(r"[^\w.-]+", "-", request.node.name)

    def gated(*arguments: Any, **settings: Any) -> GateReport:
        from ctxkit.experiments.gates.compactor_gate_and_subprocess import gate_compactor
        from ctxkit.experiments.gates.regression_gate import gate

        settings.setdefault("baseline", request.path.parent / BASELINE_FOLDER / f"{name}.json")
        settings.setdefault("update", update)
        if settings["update"]:
            request.path.parent.joinpath(BASELINE_FOLDER).mkdir(exist_ok=True)
        report: GateReport = (gate_compactor if "compact" in settings else gate)(
            *arguments, **settings
        )
        report.check()
        return report

    return gated
