"""Convert between probabilities and log-odds."""

import math

EDGE = 1e-4
"""Least distance of a probability from 0 and 1, so that its log-odds are finite."""


def log_odds(probability: float) -> float:
    """Log-odds of a probability in [0, 1]; finite at both ends."""
    bounded = min(1 - EDGE, max(EDGE, probability))
    return math.log(bounded / (1 - bounded))


def sigmoid(odds: float) -> float:
    """Probability of log-odds, in [0, 1]; never overflows."""
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))
