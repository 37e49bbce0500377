"""Lanes other than a call at once: calls that wait for a provider's batch, and the collection of their answers."""
