"""Starts, recognises and stops processes that outlive their starter: the embedded servers and the workers.

``files`` creates and locks the files of a home, ``processes`` is one detached process, ``state_directory`` lays out the
files of workers and users of a home, ``workers`` supervises the worker processes.
"""
