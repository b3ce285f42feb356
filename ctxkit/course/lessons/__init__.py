"""The exercises of each notebook, one file each."""
