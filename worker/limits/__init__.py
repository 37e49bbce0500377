"""Keeps provider calls within limits that all workers share: requests, tokens, calls at once, breaker and pauses.

terms      what the settings allow each provider and model
book       the account of one provider and model: pace, sliding window, slots, what was learned; in memory
shared     the same account in Redis, for all workers; ``exchange.lua`` is its algorithm
estimates  what a call will probably use
headers    what a provider's rate-limit headers say
line       the jobs of this process that wait for permits of one provider and model
presence   how many workers make calls
lanes      the lanes that are paused because a quota is used up; in the ledger
accounts   which account counts: the shared one, or the worker's own while Redis is away
desk       ``tasks.ports.Limits``: puts the parts together
"""
