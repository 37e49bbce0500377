"""Keeps provider calls within limits that all workers share: requests, tokens, calls at once, breaker and pauses.

terms      what the settings allow each provider and model
book       the account of one provider and model: pace, sliding window, slots, what was learned; in memory
shared     the same account in Redis, for all workers; ``exchange.lua`` is its algorithm
estimates  what a call will probably use
headers    what a provider's rate-limit headers say
line       the jobs of this process that wait for permits of one provider and model
presence   how many workers make calls
lanes      the lanes that are paused until a person or a change lets them go on; in the ledger
health     when a lane is to be paused, and which provider does not answer
accounts   which account counts: the shared one, or the worker's own while Redis is away
desk       ``tasks.ports.Limits``: puts the parts together
"""
