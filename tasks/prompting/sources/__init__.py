"""Selects the sources for a prompt: their order, duplicates, the token budget, and warnings about hostile text.

``pack`` ranks the sources and fits them into the budget, ``duplicates`` finds repetitions, ``token_count`` counts,
``injection`` finds and defuses text that imitates the prompt, ``cache_prefix`` identifies the cacheable front of a
prompt.
"""
