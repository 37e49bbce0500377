"""Turns what a model wrote into an answer; ``tasks.postprocess`` is the door.

reading      a completion or a given answer to its canonical form
segments     the JSON form, strict first, then salvaged
markers      citation markers in running text
render       the canonical form to text in the style and format asked for
citing       citations with their places in answer and source
"""
