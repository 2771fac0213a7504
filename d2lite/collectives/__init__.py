"""Who sends what to whom."""
