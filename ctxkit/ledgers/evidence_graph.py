"""Evidence as a graph: files written, commands with exit codes, symbols and references."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

from ctxkit.ledgers.acts import Act, acts, command_of, stamp
from ctxkit.ledgers.kinds import MOST_OUTPUT, EvidenceEdge, EvidenceGraph, EvidenceNode
from ctxkit.redaction import redact
from ctxkit.texts import records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.session import Session

_TEST = re.compile(
    r"(?<![\w-])(?:pytest|tox|nox|jest|vitest|go test|cargo test|ctest|"
    r"(?:npm|make|yarn) (?:run )?test)(?!\w)"
)
_TEXTS = ("content", "new", "new_string", "text", "code")
"""Arguments that hold what is written."""


def evidence_of(session: Session) -> EvidenceGraph:
    """Return what a session's record proves.

    A file that is written is verified by the next test command that succeeds; a symbol is defined
    by the file whose content says so, and referred to by later files that name it.
    """
    nodes: list[EvidenceNode] = []
    edges: list[EvidenceEdge] = []
    open_files: list[str] = []
    written: dict[str, tuple[EvidenceNode, str]] = {}
    for act in acts(session):
        if not act.tracked or act.outcome == "pending":
            continue
        node = _node(session, act, len(nodes))
        nodes.append(node)
        if node.node_type == "FileWrite" and act.outcome == "done":
            open_files.append(node.id)
            written[node.path or ""] = node, _text(act)
        elif node.node_type == "TestResult" and act.outcome == "done":
            edges += [EvidenceEdge(from_=f, to=node.id, relation="verified_by") for f in open_files]
            open_files = []
    more, joined = symbols(list(written.values()), len(nodes))
    return EvidenceGraph(
        active_session_id=session.id, nodes=(*nodes, *more), edges=(*edges, *joined)
    )


def symbols(
    written: Sequence[tuple[EvidenceNode, str]], first: int = 0
) -> tuple[list[EvidenceNode], list[EvidenceEdge]]:
    """Return definitions and references in files that were written, and how they hang together."""
    defined: dict[str, EvidenceNode] = {}
    nodes: list[EvidenceNode] = []
    edges: list[EvidenceEdge] = []

    def put(file: EvidenceNode, kind: str, **more: str) -> EvidenceNode:
        node = EvidenceNode(id=f"n{first + len(nodes)}", node_type=kind, timestamp=file.timestamp,
                            agent=file.agent, turn=file.turn, session_id=file.session_id,
                            path=file.path, **more)  # type: ignore[arg-type]  # fmt: skip
        nodes.append(node)
        return node

    for file, text in written:
        for kind, name in records.definitions(text):
            if name not in defined:
                defined[name] = put(file, "SymbolDefinition", symbol_name=name, symbol_kind=kind)
                edges.append(
                    EvidenceEdge(from_=defined[name].id, to=file.id, relation="produced_by")
                )
    for file, text in written:
        for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w{0,80}", text)):
            home = defined.get(name)
            if home is not None and home.path != file.path:
                node = put(file, "SymbolReference", symbol_name=name, target_file=home.path or "")
                edges.append(EvidenceEdge(from_=node.id, to=home.id, relation="depends_on"))
    return nodes, edges


def _node(session: Session, act: Act, number: int) -> EvidenceNode:
    output = redact(act.output)[:MOST_OUTPUT]
    command = command_of(act) if act.is_command else None
    kind = "FileDelete" if act.deletes else "FileWrite"
    if act.commit:
        kind = "GitCommit"
    elif command is not None:
        kind = "TestResult" if _TEST.search(command) else "CommandRun"
    text = "" if command is not None or act.commit else _text(act)
    return EvidenceNode(
        id=f"n{number}",
        node_type=kind,
        timestamp=stamp(act.reply.time),
        agent=act.agent,
        turn=act.turn,
        session_id=session.id,
        path=None if command is not None else act.path,
        content_hash=_hash(text) if text else None,
        command=command,
        exit_code=_exit(act) if command is not None else None,
        output_hash=_hash(act.output) if command is not None and act.output else None,
        output=output or None if command is not None else None,
        commit_message=act.commit or None,
        status="passed" if act.outcome == "done" else "failed",
    )


def _text(act: Act) -> str:
    held = (act.call.arguments.get(k) for k in _TEXTS)
    return next((v for v in held if isinstance(v, str)), "")


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def _exit(act: Act) -> int | None:
    """Return the exit code that the output names, where it does."""
    done = records.Action(act.call.name, "", "", act.outcome, act.output, act.turn, act.agent, 0)
    return done.exit
