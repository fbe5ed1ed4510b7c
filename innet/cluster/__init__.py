"""A cluster in one file: its switches and jobs, and the way from the present state to the file's."""
