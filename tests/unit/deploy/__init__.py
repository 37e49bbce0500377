"""Tests of the files that deploy Nightdesk."""
