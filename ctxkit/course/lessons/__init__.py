"""The exercises of each notebook, a file each."""
