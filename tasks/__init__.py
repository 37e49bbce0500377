"""The way of a job, a line per module, in order.

submit       validates requests and writes them to the ledger
dispatch     promotes what is due, hints what is available, sweeps what is unpublished
pipeline     admits hinted jobs to the process's loop, within its slots
generate     prompt, attempt, provider call, completion
prompt       renders a request into messages
check        postprocess, checkers, policy, final write
postprocess  turns a completion into an answer with located citations
checkers     give each claim a verdict and its evidence
finish       makes the audit record and the result
poll         answers what became of a job
retry        decides what follows a failure
rescue       takes jobs from workers that died
ports        what the steps need from outside
errors       the one tree of errors
"""
