"""Reads text, of answers and sources alike; knows no job and no provider.

sentences    where sentences stand, and the words in them
statements   which sentences state something that can be checked
quotes       where quoted words stand in a source
wording      how each language words denials, courtesies, uncertainty and figures
language     the language of a short text
among        whether any of many words stands in a text
evidence     which window of a source speaks best of a claim
"""
