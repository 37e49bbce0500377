"""The steps of a job; the modules here are its path, in this order.

submit     validates requests and writes them to the ledger, in their canonical form
generate   prompt, attempt, provider call, completion; the providers in their order
check      postprocess, checkers, policy, final write
results    makes the audit record and the result, which ``worker.scheduling.outbox`` publishes

``celery_tasks`` are the messages: each passes ids or jobs to the event loop of its worker process.

The packages hold the parts of a step, and ``estimates`` tells tokens, cost and time of jobs before their calls:

prompting    renders a request into messages: sources, templates, experiments, corrections
calls        one paid call: permit, attempt, call, close; retry, experiments, answers from the cache
lanes        the choice between a call at once and one that waits for a provider's batch; how a call is parked
answers      turns a completion into an answer: parse, cite, render
grounding    gives each claim a verdict with evidence: structure, lexical check, local model, judge
policy       decides the outcome of a checked answer, amends and restyles it, scores its quality
text         sentences, words and evidence
ports        interfaces to the outside; ``errors`` is the one tree of errors
"""
