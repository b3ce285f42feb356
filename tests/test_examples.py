"""Each public function, chart, preset and policy has an example, and all examples run."""

from __future__ import annotations

import doctest
import inspect
import warnings
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

import ctxkit as ck
from ctxkit.formats import registry
from ctxkit.tokens import prices

PACKAGE = Path(ck.__file__).parent
FILES = [p for p in sorted(PACKAGE.rglob("*.py")) if ">>> " in p.read_text(encoding="utf-8")]
MODULES = [
    ".".join(("ctxkit", *p.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for p in FILES
]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def list_public() -> dict[str, object]:
    """Return what users call: `ck.*`, `ck.plots.*`, `ck.policies.*` and the presets."""
    names = {f"ck.{n}": getattr(ck, n) for n in dir(ck)}
    names |= {f"ck.plots.{n}": getattr(ck.plots, n) for n in dir(ck.plots)}
    names |= {f"ck.policies.{n}": getattr(ck.policies, n) for n in dir(ck.policies)}
    names |= {f"ck.presets.{n}": getattr(ck.presets, n) for n in ck.presets.names()}
    return {n: v for n, v in names.items() if inspect.isfunction(v)}


@contextmanager
def keep_registries():
    """Take back the readers and prices that are registered inside the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_USER_READERS", {})
        patch.setattr(prices, "_registered", dict(prices._registered))
        yield
    prices._find_price.cache_clear()


def count_failed_examples(module: str) -> int:
    return doctest.testmod(import_module(module), optionflags=OPTIONS).failed


@pytest.mark.parametrize("name", list_public())
def test_a_public_function_has_an_example(name):
    assert ">>> " in (inspect.getdoc(list_public()[name]) or "")


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_run(module, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(), keep_registries():
        warnings.simplefilter("ignore")
        assert count_failed_examples(module) == 0


def test_what_an_example_registers_is_gone_behind_it():
    with keep_registries():
        assert count_failed_examples("ctxkit.formats.registry") == 0
        assert count_failed_examples("ctxkit.tokens.prices") == 0
        assert "my-agent" in ck.formats.format_names()
        assert prices.price("example-model") is not None
    assert "my-agent" not in ck.formats.format_names()
    assert prices.price("example-model") is None
