"""Values and rules of the domain, without I/O and without a clock."""
