"""Analyses the text of answers and sources, independent of jobs and providers.

sentences    splits text into sentences and words
passages     splits a source into passages, faster and less exactly
statements   tells the sentences that can be checked
quotes       locates a quote in a source
numerals     parses numbers
wording      phrases of denial, courtesy, uncertainty and figures in each language
language     detects the language of a short text
among        searches a text for any of many words
evidence     finds the window of a source that fits a claim best
"""
