"""The pytest fixture `ctxkit_gate`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.experiments.gates.regression_gate import GateReport

BASELINE_FOLDER = "baselines"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--ctxkit-update``."""
    group = parser.getgroup("ctxkit")
    group.addoption(
        "--ctxkit-update",
        action="store_true",
        help="write the baselines of ctxkit_gate anew instead of holding figures against them",
    )


@pytest.fixture
def ctxkit_gate(request: pytest.FixtureRequest) -> Callable[..., GateReport]:
    """Return a function that fails the test where sessions under rules got worse.

    ``ctxkit_gate(sessions, rules)`` takes what `ctxkit.gate` does; ``ctxkit_gate(compact=...)``
    what `ctxkit.experiments.gates.gate_compactor` does. Without `baseline=` it is a file named
    after the test in the folder `baselines` beside it. ``pytest --ctxkit-update`` writes it.
    """
    update: bool = request.config.getoption("--ctxkit-update")
    name = re.sub(r"[^\w.-]+", "-", request.node.name)

    def gated(*given: Any, **settings: Any) -> GateReport:
        from ctxkit.experiments.gates.compactor_gate import gate_compactor
        from ctxkit.experiments.gates.regression_gate import gate

        settings.setdefault("baseline", request.path.parent / BASELINE_FOLDER / f"{name}.json")
        settings.setdefault("update", update)
        if settings["update"]:
            request.path.parent.joinpath(BASELINE_FOLDER).mkdir(exist_ok=True)
        report: GateReport = (gate_compactor if "compact" in settings else gate)(*given, **settings)
        report.check()
        return report

    return gated
