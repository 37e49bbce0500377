"""Turns what a model wrote into an answer; ``tasks.postprocess`` is the door.

reading      a completion or a given answer to its canonical form
segments     the JSON form, strict first, then salvaged
markers      citation markers in running text
intent       which format, when the caller leaves it open
render       the canonical form to text in the style and format asked for
  flow       the segments as one text, with the places of the markers
  items      that text as the items of a list
  plain      that text without its Markdown
  styles     what sources are called, how markers look
  writing    the pass that writes, and notes where everything stands
  rendered   what comes of it
validity     whether it is what its format promises
citing       citations with their places in answer and source
"""
