"""One session: messages, edits, usage, tool calls and titles, as an append-only log of frozen
values.
"""
