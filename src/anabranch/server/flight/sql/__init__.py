"""Flight SQL: queries over the store's streams for ADBC, JDBC and what builds on them."""
