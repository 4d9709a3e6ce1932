"""Flight SQL: queries over the store's streams for ADBC, JDBC and what builds on them."""

from __future__ import annotations

from anabranch.server.flight.sql.service import FlightSql

__all__ = ["FlightSql"]
