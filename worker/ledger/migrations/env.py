"""Alembic's entry: runs the migrations on the connection that ``worker.ledger.upgrade`` hands in."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
