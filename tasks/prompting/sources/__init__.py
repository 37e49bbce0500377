"""Selects the sources for a prompt: their order, duplicates, the token budget, and warnings about hostile text.

``order`` ranks the sources, ``duplicates`` finds repetitions, ``tokens`` counts, ``pack`` fits the sources into the
budget, ``hostile`` finds and defuses text that imitates the prompt, ``prefix`` identifies the cacheable front of a
prompt.
"""
