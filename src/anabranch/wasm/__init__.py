"""Runs functions of WebAssembly modules over Arrow columns, each call within limits of instructions, time and memory.

Knows neither stores nor queries. `signature.py` and `columns.py` need no optional package; the others need the extra
`wasm`. docs/reference/wasm-abi.md describes what a module has to look like.
"""
