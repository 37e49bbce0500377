"""Turns a model's output into an answer; ``tasks.answers.postprocess`` is the entry point.

parse        parses a completion or a supplied answer into the canonical form, and merges parts that say the same
  thoughts   removes a model's thoughts and control tokens
  json_reply reads JSON that is not in the requested form: of another shape, cut off, damaged
active_content  makes HTML, script links and images harmless
stream_text  shows a reply while it comes as readers see the result
markers      finds citation markers in running text
rendered     joins the segments into one text, and writes it with the positions of its parts
  layouts    writes plain text, lists, tables and JSON
  items      splits the text into the items of a list
formats      chooses the output format, validates an answer against it, and strips Markdown
styles       describes each citation style
citations    names the sources, and locates citations in the answer and quotes in the source
redaction    removes sentences from an answer
leaves       lists the values of an object
objects      validates ``output_schema``, and the object of an answer against it
restyle      renders a recorded answer in another style or format
texts        texts for a person in place of an answer
"""
