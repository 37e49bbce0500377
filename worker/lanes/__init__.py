"""The lanes of a worker process: sends parked calls, looks after them at their providers, and stores the answers."""
