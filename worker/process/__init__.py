"""The worker process: Celery app, event loop, leases, notifications and their end."""
