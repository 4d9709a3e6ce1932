"""Byte streams over HTTP: uploads that can be resumed, and downloads with ranges, under `/v1/streams/{scope}/{name}/bytes`.

The upload follows tus 1.0 (https://tus.io) and the IETF's draft "Resumable Uploads for HTTP". All its state is in the
store: the stream's bytes, its tags and its seal. So any broker can continue it.
"""
