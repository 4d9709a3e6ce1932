"""Pure decisions: routing, append decisions, span and cut arithmetic, plans, codec. No I/O, no clock, no randomness."""
