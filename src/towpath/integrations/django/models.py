"""No models; Django sends `post_migrate` only to apps that have this module."""
