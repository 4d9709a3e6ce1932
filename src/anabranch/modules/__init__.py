"""The WebAssembly modules of a store: kept in versions, and found by the functions that they have.

Nothing here runs a module; `anabranch.wasm` does.
"""
