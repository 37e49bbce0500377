"""Alembic migrations of the ledger, in the order of their numbers."""
