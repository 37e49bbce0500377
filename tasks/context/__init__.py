"""Decides what a model is shown of a job's sources: their order, repetitions, what fits, and what to be warned of.

``order`` ranks the sources, ``duplicates`` finds those that repeat another, ``tokens`` counts, ``pack`` fits them into
the budget, ``hostile`` finds and defuses text that imitates the prompt, ``prefix`` says what jobs have in common.
"""
