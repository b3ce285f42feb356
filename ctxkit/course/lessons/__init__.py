"""The exercises of the notebooks, of one or two notebooks per file."""
