"""What type checkers are shown."""
