"""A provider and a checker for Nightdesk, to copy."""

from .checker import Quoted
from .provider import FirstSentence

__all__ = ["FirstSentence", "Quoted"]
