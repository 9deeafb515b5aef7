"""What `./dev demo` shows in a terminal: `python -m towpath.demo`."""
