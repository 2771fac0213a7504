"""What notebook_ranks, d2lite and their tools share: checks of input, words for numbers, files, memory."""
