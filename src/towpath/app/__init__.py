"""The public API: an app, its jobs and its queues. Each verb is one call of one operation."""
