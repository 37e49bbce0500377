"""The HTTP service of ``nightdesk serve``, over the same operations as the command line.

``server`` runs it, ``service`` holds what the requests share, ``app`` puts the routes together: ``jobs``, ``events``, ``batches``,
``orders`` (pause, resume, retry), ``feedback``, ``openai_files``, ``openai_batch_routes``, ``openai_responses``
(``response_order`` comes in, ``response_document`` and ``response_events`` go out), ``health``; ``pages`` are for people.
``authentication`` knows the callers, ``exposition`` shows the metrics. ``bodies`` reads requests within limits, ``problems`` turns
errors into answers, ``job_watch`` lets requests wait for jobs, ``bulk_loop`` computes what takes long beside the loop that
answers. ``submission_process`` takes large submissions in by processes of their own.
"""
