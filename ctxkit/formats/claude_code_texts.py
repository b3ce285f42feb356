"""Beginnings of the texts by which Claude Code's own messages are told from a person's."""

from __future__ import annotations

WRAPPER_PREFIXES = (
    "<command-",
    "<local-command-",
    "<bash-",
    "<task-notification>",
    "<user-memory-input>",
)
"""Commands of the program and their output, a pasted `/context` among them."""
REMINDER_PREFIX = "<system-reminder>"
"""What the program laid into a prompt: memory files, files, lists of skills."""
SUMMARY_PREFIX = "This session is being continued from a previous conversation"
"""The first words of a compaction's summary."""
