"""Alembic's entry: runs the migrations on the connection that ``worker.ledger.upgrade`` hands in."""

from alembic import context

from worker.ledger.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
