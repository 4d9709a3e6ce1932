"""The schema of the state that features keep in the catalog's table `states`: one file a kind.

Each file declares a `StateKind`: the type of its values, its key, by which value its rows are looked up, and an example.
`kinds` lists them all. A new kind of state is a new file here and a line there; `docs/reference/state.md` shows
the examples.
"""
