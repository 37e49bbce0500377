"""The nouns of Nightdesk: frozen pydantic models and enums of the wire contract; imports nothing else of ours.

``job`` and ``batch`` come in, ``generation`` says how to answer, ``prompt`` and ``completion`` are what goes to and
comes from a provider, ``answer`` and ``grounding`` are what is made of it, ``record`` is what is kept and returned,
``failure`` is what went wrong, ``states`` is the life of a job.
"""

CONTRACT_VERSION = 1
"""Version of the wire contract; stored with every request and record."""
