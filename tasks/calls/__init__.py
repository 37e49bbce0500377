"""One paid call: permit, attempt, call and close; with its retries, fallbacks, and answers from the cache."""
