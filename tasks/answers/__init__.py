"""Turns a model's output into an answer; ``tasks.answers.postprocess`` is the entry point.

reading      parses a completion or a supplied answer into the canonical form
segments     parses the JSON form: strictly first, then by salvage
markers      finds citation markers in running text
intent       chooses the format when the caller leaves it open
render       renders the canonical form in the requested style and format
  flow       joins the segments into one text with the positions of the markers
  items      splits that text into the items of a list
  plain      removes the Markdown from that text
  styles     formats source names, markers and reference lines
  writing    writes the text in one pass and records positions
  rendered   the rendered text with its positions
validity     validates a rendered answer against its format
citing       locates citations in the answer and in the source
"""
