"""Make the sample sessions that ship with the kit: `python notebooks/make_sample.py` makes the same each time.

Everything in them was made here: the repository, the agents, the people. In `billing` the tools really read and edit
the made-up files; in the others their results are words by chance. Sizes are counted, and each bill follows a cache
that keeps a prompt for five minutes.
"""

from __future__ import annotations

import gzip
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

# The kit of this repository, which the files are written to.
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from sample import chat, inbox, incident, migration, research

import ctxkit as ck
from ctxkit import tokens
from ctxkit.course.generator.billing_service_coding_session import SEED, make_billing_session
from ctxkit.formats import samples

if TYPE_CHECKING:
    from types import ModuleType

OTHERS = {
    "chat": chat,
    "inbox": inbox,
    "incident": incident,
    "migration": migration,
    "research": research,
}


def make(name: str = "billing") -> ck.Session:
    """Play a story once and return it as a session."""
    return make_billing_session() if name == "billing" else _other(name, OTHERS[name])


def _other(name: str, told: ModuleType) -> ck.Session:
    recorder = told.play(random.Random(f"{SEED} {name}"), tokens.exact_counter())
    return ck.Session(
        id=name, title=told.TITLE, agent="main", product="sample", cwd=f"/srv/{name}", model=recorder.profile.model,
        context_window=recorder.profile.context_window, started=told.STARTED, log=tuple(recorder.log),
    )  # fmt: skip


def _keep(session: ck.Session, path: Path) -> None:
    """Write it, packed where the name says so; no time stands in the file, so that its bytes are the same again."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(ck.write(session, Path(folder) / "session.jsonl").path).read_bytes()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


if __name__ == "__main__":
    for name in samples.names():
        session = make(name)
        _keep(session, samples.path(name))
        print(repr(session), f"{samples.path(name).stat().st_size:,} bytes")
