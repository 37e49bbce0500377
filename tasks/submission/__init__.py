"""Forms of a submission: messages over Redis, supplied answers, canonical requests, and conflicts between their ids."""
