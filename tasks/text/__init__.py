"""Analyses the text of answers and sources, independent of jobs and providers.

sentences    splits text into sentences and words
passages     splits a source into passages, faster and less exactly
quotes       locates a quote in a source
numerals     parses numbers
language     reads the words of each language from ``languages/*.toml``, and detects the language of a short text
wording      finds denial, courtesy, uncertainty and figures, and tells the sentences that can be checked
evidence     finds the window of a source that fits a claim best
time_limit   bounds the time of a check
"""
