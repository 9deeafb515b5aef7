"""What we do to the database: operations, each file beside its SQL."""
