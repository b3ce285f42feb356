"""What an agent may do: files inside a root, search, a shell and the kernel; any typed function
becomes a tool.
"""
