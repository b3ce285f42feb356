"""One browser and one lab serve all tests of this room."""
