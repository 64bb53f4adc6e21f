"""One file for each step, numbered; a step that has been released is never changed."""
