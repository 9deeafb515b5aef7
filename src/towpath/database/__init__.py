"""How we talk to a database: connections, group commit, borrowed transactions, wakeups, clock."""
