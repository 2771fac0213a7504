"""Pictures, pure."""
