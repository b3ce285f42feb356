"""Text prefixes that distinguish Claude Code's own messages from a person's."""

from __future__ import annotations

WRAPPER_PREFIXES = (
    "<command-",
    "<local-command-",
    "<bash-",
    "<task-notification>",
    "<user-memory-input>",
)
"""Prefixes of the program's commands and their output, including a pasted `/context`."""
REMINDER_PREFIX = "<system-reminder>"
"""Prefix of the program's additions to a prompt: memory files, files, lists of skills."""
SUMMARY_PREFIX = "This session is being continued from a previous conversation"
"""The first words of a compaction's summary."""
