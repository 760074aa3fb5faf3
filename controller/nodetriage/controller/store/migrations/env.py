"""What Alembic runs for each command. The connection comes from `migrate`; there is no alembic.ini."""

from alembic import context

from nodetriage.controller.store import schema

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=schema.metadata,
    render_as_batch=True,  # SQLite cannot alter a column; a batch copies the table
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
