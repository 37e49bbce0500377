"""Reads what a question asks for, and tells whether sources are about it.

subject           measures how well a passage fits the subject of a question
subject_evidence  tells whether the evidence of an answer is about the subject of its question
"""
