"""What is kept on disk: a session's log, artifacts, events, checkpoints (places in the log)."""
