"""Torture: real processes around one store, real signals, real servers; and the judgement of what is left."""
