"""The operations on a ledger, one function each, for every door: no operation prints, asks or reads the command line.

``job_changes`` cancels, releases, retries and rechecks jobs; ``content_removal`` takes content back; ``file_submission`` hands in
files (read by ``json_lines``); ``result_lines`` writes results; ``estimation``
estimates files and batches; ``audit`` and ``overview`` collect what is known of a job
and of batches. Inputs and results are typed, ``JobPages`` tells the progress.
"""
