"""Keeps provider calls within limits that all workers share: requests, tokens, calls at once, breaker and pauses.

rate_limiter     ``tasks.ports.Limits``: puts the parts together
permit_queue     the jobs of this process that wait for permits of one provider and model, and the size of their calls
redis_bucket     the bucket in Redis, for all workers (``exchange.lua`` is its algorithm), or the worker's share of it
bucket           the same bucket in memory: pace, sliding window, slots, learned limits
rates            the limits of a provider and model: of the settings, and of its rate-limit headers
lanes            pauses lanes by the failures of their calls, and knows the unreachable providers
presence         the number of workers that make calls, and their messages to each other; in the ledger
"""
