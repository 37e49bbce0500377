"""A stand-in for OpenAI and Anthropic over loopback HTTP, with what no public simulator has, and a count of calls."""
