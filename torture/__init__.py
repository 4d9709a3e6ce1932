"""Torture: real processes around one store, real signals, real servers; and the judgement of the resulting store."""
