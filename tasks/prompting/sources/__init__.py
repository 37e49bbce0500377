"""Selects the sources for a prompt: their order, duplicates, the token budget, and warnings about hostile text.

``pack`` ranks the sources, counts their tokens and fits them into the budget, ``duplicates`` finds repetitions, and
``injection`` finds and defuses text that imitates the prompt.
"""
