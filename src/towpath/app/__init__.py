"""The public API: an app, its jobs and its queues. Each verb runs one operation."""
