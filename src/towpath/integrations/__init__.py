"""Integrations with web frameworks. Towpath itself imports none of them."""
