"""Real sessions where `CTXKIT_SESSIONS` names them; a printed seed for families that are sampled."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import shutil
import sys
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from ctxkit.agent import load_litellm

if TYPE_CHECKING:
    from collections.abc import Generator

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers that share cores wait for each other
# each worker, kernel and command would compile the kit and its libraries again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# jsonschema would build a grammar for each rule of IRIs, for more than a second; no schema here asks for one
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
gc.set_threshold(20_000, 20, 50)  # tests make many objects and few cycles, and end soon

pytest_plugins = ["forked_workers"]

SEED = int(os.environ.get("CTXKIT_SEED", random.SystemRandom().randrange(10**6)))
TESTS = Path(__file__).parent
LIBRARIES = ("acp", "mcp", "nbconvert", "openpyxl")
MANY_TESTS = 1000
"""With more tests than this each worker would import all of them."""
ALL = os.environ.get("CTXKIT_TEST_ALL") == "1"
"""True in `make test-all`: take everything of a long family."""


def examples(n: int) -> int:
    """All examples of a property in `make test-all`, else half of them."""
    return n if ALL else -(-n // 2)


settings.register_profile(
    "ctxkit",
    deadline=None,
    max_examples=examples(50),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ctxkit")


def pytest_report_header() -> str:
    where = os.environ.get("CTXKIT_SESSIONS", "not set: tests on real sessions skip")
    return f"ctxkit: CTXKIT_SEED={SEED} CTXKIT_SESSIONS={where}"


def pytest_configure(config: pytest.Config) -> None:
    os.environ["CTXKIT_SEED"] = str(SEED)  # one seed for all workers
    os.environ.pop("VIRTUAL_ENV", None)  # IPython warns where another one than its own is active
    folder = str(Path(sys.executable).parent)
    if os.environ["PATH"].split(os.pathsep)[0] != folder:  # `python` in a command is this one
        os.environ["PATH"] = folder + os.pathsep + os.environ["PATH"]
    state = os.environ["XDG_STATE_HOME"] = mkdtemp(prefix="ctxkit-state-")  # kernels inherit it
    config.add_cleanup(lambda: shutil.rmtree(state, ignore_errors=True))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: thousands of tests stay, and would be looked through often."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Import what most tests need, once for all workers that will be forked."""
    if session.config.getoption("--workers") and len(session.items) > MANY_TESTS:
        load_litellm().ModelResponse()  # its class is built late, with a warning of pydantic's
        for library in LIBRARIES:
            import_module(library)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Behind a module, freeze what libraries and caches hold: each collection would look through it."""
    if nextitem is not None and nextitem.path != item.path:
        freeze_long_lived_objects()


def freeze_long_lived_objects(at_least: int = 100_000) -> None:
    """Collect, then freeze, if so many objects have outlived two collections."""
    if len(gc.get_objects(generation=2)) >= at_least:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def closed_clients() -> Generator[None]:
    """Close the clients that LiteLLM keeps of loops that are gone; at the interpreter's end it is too late."""
    yield
    if litellm := sys.modules.get("litellm"):
        asyncio.run(litellm.close_litellm_async_clients())


def sessions_folder() -> Path | None:
    """The folder of real sessions, or None."""
    named = os.environ.get("CTXKIT_SESSIONS")
    return Path(named) if named and Path(named).is_dir() else None


@pytest.fixture(scope="session")
def real() -> Path:
    """The folder of real sessions; skips where it is not set."""
    folder = sessions_folder()
    if folder is None:
        pytest.skip("CTXKIT_SESSIONS names no folder of real sessions")
    return folder


@pytest.fixture(autouse=True)
def own_prices() -> Generator[None]:
    """Take back the prices that a test registers: other tests use models of the same names."""
    from ctxkit.tokens import prices

    registered = dict(prices._registered)
    yield
    if prices._registered != registered:
        prices._registered.clear()
        prices._registered.update(registered)
        prices._find_price.cache_clear()


def sample(cases: list, n: int) -> list:
    """All cases in `make test-all`, else `n` of them by the printed seed."""
    return cases if ALL or len(cases) <= n else random.Random(SEED).sample(cases, n)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A real IPython with the extension, in a folder of its own; prompts hold what tests put there."""
    from magics.ipython_shells import new_shell

    monkeypatch.chdir(tmp_path)
    shell = new_shell()
    shell.run_line_magic("load_ext", "ctxkit")
    shell.magics_manager.registry["CtxKit"].sections = "off"
    yield shell
    shell.run_line_magic("unload_ext", "ctxkit")
