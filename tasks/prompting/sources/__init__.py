"""Selects the sources for a prompt: their order, duplicates, the token budget, and warnings about hostile text.

``pack`` ranks the sources, counts their tokens, finds repetitions and fits the rest into the budget; ``injection``
finds and defuses text that imitates the prompt.
"""
