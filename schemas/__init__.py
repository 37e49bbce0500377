"""The nouns of Nightdesk: frozen pydantic models and enums of the wire contract, without imports from other packages.

``job`` and ``batch`` are the input, ``generation`` has the choices of a job's config, ``model_call`` is the prompt and
its completion, ``answer`` and ``grounding`` are the answer and its check, ``record`` is the audit record and the result,
``failure`` is an error, ``states`` is the life of a job.
"""

CONTRACT_VERSION = 1
"""Version of the wire contract; stored with every request and record."""
