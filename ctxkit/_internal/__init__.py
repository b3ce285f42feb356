"""Helpers without knowledge of sessions: safe text, tables, the file system, redaction, lazy
names.
"""
