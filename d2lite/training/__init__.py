"""The loops that a learner reads."""
