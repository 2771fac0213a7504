"""What is clicked."""
