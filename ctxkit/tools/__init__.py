"""What an agent may do: files below a root, search, shell, kernel, any typed function."""
