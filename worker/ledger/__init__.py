"""The ledger over PostgreSQL: schema, migrations, verbs, and group commit; the only place with SQL."""
