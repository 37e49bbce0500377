"""The viewer: pages for reviewers and auditors, rendered here over the same operations as the API, readable without JavaScript.

``viewer`` puts the routes together: ``entry`` (the key), ``batch_pages``, ``job_pages``, ``order_forms`` (labels, replays and other orders), ``review_pages``.
``visitors`` knows the people and guards their forms, ``rendering`` makes the pages and their headers, ``page_texts`` marks
spans.
"""
