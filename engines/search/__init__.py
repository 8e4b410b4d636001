"""The search for the smallest failing part, and what it stands on: how it asks, looks again,
settles and names causes."""
