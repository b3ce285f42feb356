"""A session with sections and a store, billed by a model of the price table whose cache works."""

from __future__ import annotations

from ctxkit.agent import PromptSection, make_section_message
from ctxkit.session import Message, Session, Text, ToolCall, Usage
from ctxkit.tokens import default_counter

MODEL = "claude-sonnet-4-5"
BLOCKS = (
    PromptSection("base", "You are an agent. " * 40, 720),
    PromptSection("gitignore", "build/ dist/ target/ " * 60, 9000),
    PromptSection("store", "CONTEXT — reference\n  [spec]: .ctxkit/context/spec/a.md", 5000),
    PromptSection("time", "Date/time: 2026-05-27 10:30:00 -05:00 (America/Chicago)", 56),
)


def talk(
    turns: int = 4, reads: bool = True, blocks: tuple[PromptSection, ...] = BLOCKS, fixed: int = 700
) -> Session:
    """Each turn: a prompt, in the first one a read of the store, then an answer. Prompts are read from the cache."""
    from msgspec.structs import replace

    count, log, prompt, n = default_counter().message, [], fixed, 0
    clock = 1_780_000_000.0

    def put(message: Message) -> None:
        nonlocal prompt
        log.append(replace(message, id=f"m{len(log)}", time=clock + 10 * len(log)))
        prompt += count(log[-1])

    def reply(*parts, before: list[int]) -> None:
        nonlocal n
        usage = Usage(
            input_tokens=0,
            cache_read_tokens=before[0],
            cache_write_tokens=prompt - before[0],
            output_tokens=40,
        )
        before[0] = prompt
        put(
            Message(role="assistant", parts=parts, model=MODEL, usage=usage, stop="stop", turn=turn)
        )

    before = [0]
    turn = 0
    put(replace(make_section_message("system", blocks), turn=0))
    for turn in range(turns):
        put(
            Message(
                role="user", parts=(Text(f"Please do part {turn} of the work " * 20),), turn=turn
            )
        )
        if reads and turn == 0:
            call = ToolCall("c0", "read_file", {"path": ".ctxkit/context/spec/a.md"})
            reply(Text("I read."), call, before=before)
            put(
                Message(
                    role="tool",
                    tool="read_file",
                    call_id="c0",
                    parts=(Text("spec " * 900),),
                    turn=turn,
                )
            )
        reply(Text("Done with it. " * 30), before=before)
    return Session(id="s", log=tuple(log), model=MODEL)
