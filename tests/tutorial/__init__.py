"""Runs the commands of the tutorial as a reader does."""
