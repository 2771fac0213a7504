"""What is learned from."""
