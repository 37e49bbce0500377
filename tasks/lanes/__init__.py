"""Lanes other than a call at once: how one is chosen, and how a call is parked for it."""
