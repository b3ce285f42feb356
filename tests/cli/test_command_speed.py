"""A thousand sessions that were seen before: the first line comes at once."""

from __future__ import annotations

import resource
import subprocess

import pytest
from cli.command_runner import COMMAND, ctxkit, environment

import ctxkit as ck


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    home = tmp_path_factory.mktemp("many")
    folder = home / ".ctxkit" / "sessions"
    folder.mkdir(parents=True)
    talk = [{"role": "user", "content": "Sum up."}, {"role": "assistant", "content": "Done."}]
    ck.write(ck.read(talk), folder / "one.jsonl")
    text = (folder / "one.jsonl").read_text()

    for i in range(1000):
        (folder / f"{i}.jsonl").write_text(text.replace('"messages"', f'"session-{i}"'))
    (folder / "one.jsonl").unlink()
    assert ctxkit(home, "list", "--all").returncode == 0
    return home


def seconds(home, *words):
    """CPU seconds, and the first line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*COMMAND, *words],
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stdout


def test_a_list_of_a_thousand_takes_less_than_two_fifths_of_a_second(many):
    found = [seconds(many, "list", "--all") for _ in range(3)]
    assert len(found[0][1].splitlines()) == 1002
    assert min(t for t, _ in found) < 0.4


def test_the_first_line_of_a_report_needs_no_log(many):
    """Said before the log is read: it is there though the log is gone wrong since."""
    taken, shown = min(seconds(many, "report", "session-999") for _ in range(2))
    assert shown.startswith("Sum up., 1 call\n")
    log = many / ".ctxkit" / "sessions" / "999.jsonl"
    stat = log.stat()
    log.write_text("x" * stat.st_size)
    import os

    os.utime(log, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    done = ctxkit(many, "report", "session-999")
    assert done.returncode == 2
    assert done.stdout.startswith("Sum up., 1 call\n")
    assert taken < 2
