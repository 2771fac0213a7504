"""All that is predicted."""
