"""What things are: values and rules, without I/O and without a clock."""
