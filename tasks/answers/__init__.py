"""Turns a model's output into an answer; ``tasks.answers.postprocess`` is the entry point.

parse        parses a completion or a supplied answer into the canonical form; JSON strictly first, then by salvage
markers      finds citation markers in running text
render       renders the canonical form in the requested style and format
  items      splits that text into the items of a list
  rendered   joins the segments into one text, and formats and places the markers of its sources
formats      chooses the output format, validates an answer against it, and strips Markdown
citations    locates citations in the answer and quotes in the source
objects      validates ``output_schema``, and the object of an answer against it
restyle      renders a recorded answer in another style or format
texts        texts for a person in place of an answer
"""
