"""Towpath in the frameworks of others. Nothing here is imported unless it is asked for."""
