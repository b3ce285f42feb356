"""Run tests in forks of the process that collected them: `pytest --workers 4 tests`.

A worker of pytest-xdist is a new interpreter: it imports all libraries and collects all tests for
itself. A fork has both already and costs next to nothing. With two workers a core, one test runs
while another waits; more than that only contend for the processor's caches.

Tests of one file run one after the other in the same worker, and so do those of a folder that
shares a fixture: what they share is made once. Long tests are divided further. A worker that has run such a batch takes the number
of the next one from a pipe. It sends its reports to the parent, which passes them on to the hooks
of pytest as if it had run the tests itself.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import traceback
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from xdist.remote import serialize_warning_message
from xdist.workermanage import unserialize_warning_message

if TYPE_CHECKING:
    import warnings
    from multiprocessing.connection import Connection
    from pathlib import Path

NUMBER_BYTES = 4
"""Bytes of a batch number in the pipe. So few are always read by one worker alone."""
LONG_TESTS_IN_A_BATCH = 5
"""Long tests of one file that run in a row. Fixtures of the file are made anew for each batch."""


class Worker(NamedTuple):
    """A fork, and the connection on which its reports arrive."""

    pid: int
    reports: Connection


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="run the tests in so many forks")


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected tests in forks where `--workers` asks for them."""
    count = session.config.getoption("--workers")
    if not count or session.config.option.collectonly or session.testsfailed:
        return None
    session.config.pluginmanager.getplugin("terminalreporter").showfspath = False
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # of all workers
    batches = list_batches(session.items)
    numbers = write_numbers_to_pipe(len(batches))
    workers = [start_worker(session, index, batches, numbers) for index in range(count)]
    try:
        receive_messages(session, workers)
        if os.read(numbers, NUMBER_BYTES):
            raise session.Interrupted("all workers have ended, and tests are left that did not run")
    finally:
        os.close(numbers)
        for worker in workers:
            end_worker(worker)
    return True


def list_batches(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """Divide the tests into batches: those of a folder that share a fixture, and those of each file.

    The long tests of a file are batches of their own, a few in each, so that workers share them.
    The batches that take longest begin first: folders, then long tests, then files by their number
    of tests. So what the last workers run is short.
    """
    folders: dict[Path, list[pytest.Item]] = {}
    files: dict[Path, list[pytest.Item]] = {}
    long_tests: dict[Path, list[pytest.Item]] = {}
    for item in items:
        folder = get_folder_with_fixtures(item)
        if folder is not None:
            folders.setdefault(folder, []).append(item)
        elif item.get_closest_marker("long"):
            long_tests.setdefault(item.path, []).append(item)
        else:
            files.setdefault(item.path, []).append(item)
    long_batches = [
        tests[start : start + LONG_TESTS_IN_A_BATCH]
        for tests in long_tests.values()
        for start in range(0, len(tests), LONG_TESTS_IN_A_BATCH)
    ]
    by_size = [sorted(each.values(), key=len, reverse=True) for each in (folders, files)]
    return [*by_size[0], *long_batches, *by_size[1]]


def get_folder_with_fixtures(item: pytest.Item) -> Path | None:
    """Return the folder of a test that uses a fixture of its package; None for other tests."""
    fixtures = getattr(item, "_fixtureinfo", None)
    definitions = fixtures.name2fixturedefs.values() if fixtures else ()
    return item.path.parent if any(d[-1].scope == "package" for d in definitions) else None


def write_numbers_to_pipe(count: int) -> int:
    """Return the end of a pipe from which each number below `count` can be read once."""
    to_read, to_write = os.pipe()
    os.write(to_write, b"".join(number.to_bytes(NUMBER_BYTES, "big") for number in range(count)))
    os.close(to_write)
    return to_read


def start_worker(
    session: pytest.Session, index: int, batches: list[list[pytest.Item]], numbers: int
) -> Worker:
    """Fork a worker, which runs batches until no number is left and never returns from here."""
    reports, to_parent = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        to_parent.close()
        return Worker(pid, reports)
    exit_code = 1
    try:
        reports.close()
        prepare_worker(session, index, to_parent)
        while number := os.read(numbers, NUMBER_BYTES):
            run_batch(session, batches[int.from_bytes(number, "big")])
        finish_worker(session)
        to_parent.send(("done", {}))
        exit_code = 0
    except BaseException:
        session.config.pluginmanager.getplugin("capturemanager").stop_global_capturing()
        traceback.print_exc()
    finally:
        os._exit(exit_code)


def prepare_worker(session: pytest.Session, index: int, to_parent: Connection) -> None:
    """Give a fork its own capture, temporary folder and receiver of reports."""
    plugins = session.config.pluginmanager
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()  # the parent's files, which all forks would share
    capture.start_global_capturing()
    plugins.unregister(plugins.getplugin("terminalreporter"))
    plugins.register(MessagesToParent(session.config, to_parent))
    factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"worker{index}"
    factory._basetemp.mkdir(mode=0o700)


class MessagesToParent:
    """Hooks that send what happens to tests: the kind, and the arguments of the parent's hook."""

    def __init__(self, config: pytest.Config, to_parent: Connection) -> None:
        self.config = config
        self.to_parent = to_parent

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self.to_parent.send(("start", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self.to_parent.send(("finish", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self.config.hook.pytest_report_to_serializable
        self.to_parent.send(("report", hook(config=self.config, report=report)))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        message = serialize_warning_message(warning_message)
        arguments = {"when": when, "nodeid": nodeid, "location": location}
        self.to_parent.send(("warning", {"warning_message": message, **arguments}))


def run_batch(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Run tests in a row; after them only fixtures of the session remain."""
    for item, following in zip(items, [*items[1:], session], strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def finish_worker(session: pytest.Session) -> None:
    """End the fixtures of the session, and what the interpreter would end when it exits."""
    session._setupstate.teardown_exact(None)
    session.config.pluginmanager.getplugin("capturemanager").suspend_global_capture()
    atexit._run_exitfuncs()


def receive_messages(session: pytest.Session, workers: list[Worker]) -> None:
    """Pass on the messages of all workers until each is done or has crashed."""
    current_tests: dict[Connection, dict[str, Any]] = {worker.reports: {} for worker in workers}
    while current_tests:
        for connection in wait(list(current_tests)):
            try:
                kind, arguments = connection.recv()
            except EOFError:
                report_crash(session.config, **current_tests.pop(connection))
                continue
            if kind == "done":
                del current_tests[connection]
            elif kind == "start":
                current_tests[connection] = arguments
            else:
                pass_on_message(session.config, kind, arguments)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)


def report_crash(config: pytest.Config, nodeid: str = "", location: Any = ("", 0, "")) -> None:
    """Report that the test failed within which a worker ended."""
    text = "The worker ended within this test; those of its batch that come after it did not run."
    report = pytest.TestReport(nodeid, location, {}, "failed", text, "call")
    config.hook.pytest_runtest_logreport(report=report)


def pass_on_message(config: pytest.Config, kind: str, arguments: dict[str, Any]) -> None:
    """Call the hook of pytest that a message stands for."""
    if kind == "report":
        report = config.hook.pytest_report_from_serializable(config=config, data=arguments)
        config.hook.pytest_runtest_logreport(report=report)
    elif kind == "finish":
        config.hook.pytest_runtest_logfinish(**arguments)
    elif kind == "warning":
        message = unserialize_warning_message(arguments["warning_message"])
        kwargs = {**arguments, "warning_message": message}
        config.hook.pytest_warning_recorded.call_historic(kwargs=kwargs)


def end_worker(worker: Worker) -> None:
    """End a fork that still runs, and wait for it."""
    pid, _ = os.waitpid(worker.pid, os.WNOHANG)
    if not pid:
        os.kill(worker.pid, signal.SIGTERM)
        os.waitpid(worker.pid, 0)
