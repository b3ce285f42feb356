"""Real systems as rules, under their own names and their own settings:
`presets.fased(reserve_tokens=40_000)`.
"""

from __future__ import annotations

from ctxkit.faces import face

_PRESETS = (
    "fuseraft",
    "tyrum",
    "ai",
    "pulse_coder",
    "fased",
    "pi",
    "swe_agent_mask",
    "codex",
    "claude_code",
    "gemini",
    "openclaw",
    "opencode",
    "openhands",
    "langchain_summary",
    "langchain_clear_tools",
    "anthropic_clear_tools",
    "inspect_edit",
    "inspect_trim",
    "inspect_summary",
    "openai_server",
    "deepagents",
    "strands",
    "adk",
    "semantic_kernel",
    "agent_framework",
    "letta",
    "boise",
    "cline",
    "roo",
    "goose",
    "ai_sdk",
    "anthropic_compact",
    "jev",
    "aider",
    "lcm",
    "none",
)
_NAMES = {
    **{name: f"_{name}" for name in _PRESETS},
    "names": "preset_names",
    "preset": "preset_names",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES)
