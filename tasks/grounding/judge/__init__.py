"""The judge: a model asked, in one call per answer, about the claims that the other layers leave open.

plan          chooses the claims of a request and its passages, and renders its prompt: numbered claims, or a question per
              claim for a judge that gives probabilities
request       the request about an answer: open claims with their windows of the sources, those to ask about, cached verdicts
reply         parses a reply into findings, and locates its quotes
verdicts      combines verdicts and lexical scores into one finding per claim
call          makes the call, and shares its verdicts between the jobs of a batch

All but the last line is pure.
"""
