"""What messages did: outcomes, files, commands, and the texts made of them."""

from builders import assistant, call, result, tool_call, user

from ctxkit.policies import tool_evidence_summaries as re_
from ctxkit.policies.texts import tool_outcomes_and_files


def did(name, text="ok", is_error=False, **arguments):
    c = call(name, **arguments)
    return [c, result(text, c, is_error=is_error)]


WORK = [
    user("go"),
    *did("read_file", path="a.py"),
    *did("patch_file", "oldText not found", True, path="a.py"),
    *did("shell_run", "tests failed\nexit code: 1", command="go test ./..."),
    call("deploy", target="x"),
]
TURNS = [0, 0, 0, 1, 1, 2, 2, 3]


def test_outcomes_come_from_the_record():
    assert [a.outcome for a in tool_outcomes_and_files.collect_actions(WORK)] == [
        "done",
        "failed",
        "failed",
        "pending",
    ]
    assert tool_outcomes_and_files.collect_actions(WORK)[2].exit == 1


def test_an_exit_status_stands_in_the_last_400_or_the_first_200_characters():
    def get_status(before: int, after: int) -> int | None:
        output = "." * before + "exit code: 3" + "." * after
        return tool_outcomes_and_files.collect_actions(did("shell_run", output))[0].exit

    assert get_status(1_000, 400 - 12) == 3
    assert get_status(200 - 12, 1_000) == 3
    assert get_status(200 - 11, 1_000) is None
    assert get_status(1_000, 400 - 11) is None


def test_a_zero_exit_status_is_success():
    assert not tool_outcomes_and_files.is_failed_result(result("fine\nexit code: 0", tool="bash"))
    assert not tool_outcomes_and_files.is_failed_result(
        result("the docs say exit code: 3 means no", tool="read_file")
    )


def test_intent_lines_of_the_document_and_of_the_program():
    text = re_.write_tool_call_lines(WORK, TURNS)
    assert text.startswith("[INTENT-DERIVED RECONSTRUCTION — covers turns 1–4]")
    assert '  ✓ read_file → "a.py" (turn 1, main)' in text
    assert '  ✗ patch_file → "a.py" — oldText not found (turn 2, main)' in text
    assert '  ✗ shell_run → "go test ./..."' in text
    program = re_.write_tool_call_lines(WORK, TURNS, quirks=True)
    assert '  ✗ patch_file → "a.py" (turn 2, main) — oldText not found' in program
    assert "  ✗ shell_run (turn 3, main)" in program


def test_pending_calls_are_warned_of():
    assert "WARNING: deploy has no recorded outcome" in re_.write_tool_call_lines(WORK, TURNS)
    assert "no tracked tool calls" in re_.write_tool_call_lines([user()], [0])


def test_a_failure_is_open_until_the_same_thing_succeeds():
    acts = tool_outcomes_and_files.collect_actions(WORK)
    assert [a.tool for a in tool_outcomes_and_files.select_unresolved_failures(acts)] == [
        "patch_file",
        "shell_run",
    ]
    cured = tool_outcomes_and_files.collect_actions([*WORK, *did("patch_file", path="a.py")])
    assert [a.tool for a in tool_outcomes_and_files.select_unresolved_failures(cured)] == [
        "shell_run"
    ]


def test_evidence_names_files_commands_and_what_failed():
    text = re_.write_evidence(
        tool_outcomes_and_files.collect_actions(
            [*WORK, *did("write_file", path="b.py")], [*TURNS, 4, 4]
        )
    )
    assert "FILES WRITTEN\n  b.py" in text
    assert "✗ shell_run go test ./... [exit 1] (turn 3)\n    tests failed" in text
    assert text.index("write_file") < text.index("read_file")  # newest first
    assert "OPEN FAILURES" in text


def test_a_failed_write_is_no_file_written():
    assert (
        tool_outcomes_and_files.list_written_files(tool_outcomes_and_files.collect_actions(WORK))
        == ()
    )


def test_reasoning_is_cut_and_absent_where_nothing_was_thought():
    block = tool_outcomes_and_files.format_reasoning_block(
        [assistant("x", thinking="h" * 2500)], [4]
    )
    assert block.splitlines()[1].startswith("Turn 5 (main): hhh")
    assert block.endswith("[TRUNCATED — 2,500 chars total]")
    assert tool_outcomes_and_files.format_reasoning_block([assistant("x")], [0]) == ""


def test_exploration_and_symbols_are_read_off_the_calls():
    acts = tool_outcomes_and_files.collect_actions(
        [m for path in ("a.py", "c.py") * 2 + ("a.py",) for m in did("read_file", path=path)]
        + did("grep", pattern="TODO")
        + did("write_file", path="b.py")
    )
    explored = tool_outcomes_and_files.format_exploration_block
    heading = "[EXPLORATION HISTORY — investigation performed before compaction]\n"
    # what is only written is not read, and twice is not often
    assert explored(acts) == (
        f"{heading}Files read: 2 (5 reads)\n  grep: TODO\n  read 3 times: a.py"
    )
    assert explored(acts[:1]) == f"{heading}Files read: 1 (1 reads)"
    assert explored(acts[5:]) == f"{heading}  grep: TODO"
    assert explored(acts[6:]) == ""
    assert tool_outcomes_and_files.format_symbols_block(acts, [("b.py", "x = 1")]) == ""
    texts = [("", "def run(x):\n  class Inner:\n"), ("b.py", "def load(x):\n  run(x)\n")]
    # a symbol of an unknown file is defined, and is the aim of no reference
    assert tool_outcomes_and_files.format_symbols_block(acts, texts) == (
        "[SYMBOL DEPENDENCY GRAPH — 3 node(s) across 1 file(s)]\n"
        "  SymbolDefinition (def): run\n"
        "  SymbolDefinition (class): Inner\n"
        "  SymbolDefinition (def): load"
    )


def test_references_within_a_file_and_from_another_one_are_listed():
    """F73: Each symbol that a written file uses, also one that the file itself defines."""
    own = ("a.py", "def run(x):\n  return x\n\ndef idle():\n  run(1)\n")
    for texts in ([own], [("a.py", "def run():\n"), ("b.py", "run(2)\n")]):
        block = tool_outcomes_and_files.format_symbols_block([], texts)
        assert [row for row in block.splitlines() if "SymbolReference" in row] == [
            "  SymbolReference: run → a.py"
        ]


def test_a_marker_of_failure_says_why():
    assert re_.make_failure_marker([0, 3], "model\ntimed out").splitlines()[:2] == [
        "[COMPACTION FAILED — covers turns 1–4]",
        "Summary generation failed: model timed out",
    ]


def test_parallel_calls_keep_their_own_outcomes():
    a, b = tool_call("read_file", path="a"), tool_call("read_file", path="b")
    acts = tool_outcomes_and_files.collect_actions(
        [assistant("", a, b), result("no", b, is_error=True), result("ok", a)]
    )
    assert [(x.target, x.outcome) for x in acts] == [("a", "done"), ("b", "failed")]
