"""One paid call: its attempt and how it is closed, cancellation, retries, fallbacks, and answers that are shared."""
