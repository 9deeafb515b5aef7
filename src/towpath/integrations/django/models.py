"""No models; but only to apps that have this module Django says that it has migrated."""
