"""What `dir` shows of a public module is what it offers, and nothing else; what it offers is there."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

import ctxkit


def rooms(module: ModuleType) -> list[str]:
    """Return the name of a module and of every public module below it, as a person reaches them."""
    below = [getattr(module, name) for name in module.__all__]
    return [module.__name__, *(n for m in below if isinstance(m, ModuleType) for n in rooms(m))]


PACKAGES = [m.name for m in iter_modules(ctxkit.__path__, "ctxkit.") if m.ispkg]
PUBLIC = sorted({*rooms(ctxkit), *(n for n in PACKAGES if hasattr(import_module(n), "__all__"))})


def test_the_walk_finds_the_public_modules():
    known = (
        "metrics",
        "plots",
        "policies",
        "presets",
        "formats",
        "metrics.compaction_outcomes",
    )
    assert {f"ctxkit.{n}" for n in known} <= set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_dir_is_all_and_all_is_there(name: str):
    module = import_module(name)
    assert dir(module) == sorted(module.__all__)
    assert [n for n in module.__all__ if not hasattr(module, n)] == []
    with pytest.raises(AttributeError, match="nonsense"):
        module.nonsense  # noqa: B018


def test_metrics_are_there_in_a_fresh_interpreter_whatever_was_imported_first():
    code = """if True:
        import sys
        exec(sys.argv[1])
        import ctxkit as ck
        s = ck.read(ck.samples.path())
        for name in ck.metrics.__all__:
            getattr(ck.metrics, name)
        assert ck.metrics.thrash(s) == ck.metrics.compaction_outcomes.thrash(s)
        print(len(ck.metrics.thrash(s).outcomes), len(ck.metrics.compaction_outcomes.get_compaction_outcomes(s)), len(ck.metrics.audits(s)))
    """
    for first in (
        "pass",
        "from ctxkit.metrics.compaction_outcomes import get_compaction_outcomes",
        "import ctxkit.experiments.cost_and_loss_scores",
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, first],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout == "2 2 2\n", done.stderr
