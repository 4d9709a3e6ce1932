"""The schema of the state that features keep in the catalog's table `states`.

Each kind is declared as a `StateKind`: the type of its values, its key, by which value its rows are looked up, and an
example. `kinds` lists them all; `docs/reference/state.md` shows the examples.
"""
