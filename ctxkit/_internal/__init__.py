"""Helpers without knowledge of sessions: safe text, tables, file system, redaction."""
