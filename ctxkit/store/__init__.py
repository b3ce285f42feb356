"""What is kept on disk: the session's log, its artifacts and events, and checkpoints as pointers
into the log.
"""
