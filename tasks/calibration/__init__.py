"""Fits the check to labels of an operator, and tells what share of errors its verdicts then promise.

curves         fits curves from scores to probabilities, and finds thresholds and metrics
fitting        fits weights to labels
recalibration  fits all that an operator's labels can teach
guarantee      bounds the share of errors among the verdicts that remain
"""
