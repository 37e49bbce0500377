"""Analyses the text of answers and sources, independent of jobs and providers.

sentences       splits text into sentences and words, and a source into passages
language        reads the words of each language from ``languages/*.toml``, and detects the language of a short text
wording         reads words: stems, numbers, denial, courtesy, uncertainty
word_search     searches for words and patterns with Rust's regular expressions
statements      reads a sentence: its claim, its denial, or the reason that it states nothing
clauses         splits a sentence into the clauses that state something each
evidence        finds the window of a source that fits a claim best, in bounded time
"""
