"""The way of a job, a line per module, in order.

given        reads answers that already exist as check-only jobs
door         reads what a message over Redis carries
submit       validates requests and writes them to the ledger
canonical    writes a request in its canonical form, with its hash
dispatch     promotes what is due, hints what is available, sweeps what is unpublished
pipeline     admits hinted jobs to the process's loop, within its slots
generate     prompt, attempt, provider call, completion
closing      says how an attempt ends, and where its job goes then
cancelling   keeps an answer that comes together with a cancellation
turns        plans a job's calls to its provider and its fallbacks
sharing      says which calls share their answers, so that one is paid for
trial        draws the version of a prompt where several are tried
prompt       renders a request into messages; ``templates`` holds the templates, each with version and hash;
             ``context`` decides what is shown of the sources
correcting   lets a prompt go on with the answer before and what is wrong with it, for a second round
check        postprocess, checkers, policy, final write
postprocess  turns a completion into an answer with located citations; its parts are in ``answers``
checkers     give each claim a verdict and its evidence
policy       decides: asked again, gone back from, or which outcome
amend        takes out, cuts and lists what the policy says
quality      reckons the answer's quality and whether the sources suffice
judging      asks a judge about what the checkers leave open
hearing      remembers what a judge said in a batch, so that the same is asked once
finish       makes the audit record and the result
restyle      renders a stored answer in another style or format
texts        what a person reads where there is no answer
poll         answers what became of a job
retry        decides what follows a failure
rescue       takes jobs from workers that died
standin      leaves jobs that want the local model to the plain check where no worker has one
erase        what stands in the place of a job whose content is erased

Beside the way: ``ports`` (what the steps need from outside), ``errors`` (their one tree), ``batching`` (sends rows of many
callers together, and small pieces of CPU work to its thread) and ``text`` (sentences, words, quotes and evidence).
"""
