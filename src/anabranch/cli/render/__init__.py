"""Prints the rows of a result, on stdout or into a file: a file here for each format."""
