"""Forms of a submission: supplied answers, canonical requests, and conflicts between their ids."""
