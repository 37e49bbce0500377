"""Streams: tokens of streamed answers over Redis."""
