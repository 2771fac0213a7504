"""Real ranks for notebook cells."""
