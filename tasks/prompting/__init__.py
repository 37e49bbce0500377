"""Prompting: renders a request into messages, with sources, templates and corrections."""
