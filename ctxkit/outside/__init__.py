"""Programs beside ours that we speak with: servers of tools (MCP), and agents (ACP).

Each is a child process that speaks lines of JSON. What comes from it is data: bounded, never run.
"""
