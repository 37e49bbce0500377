"""Policy: decides the outcome of a checked answer, redacts it, and scores its quality."""
