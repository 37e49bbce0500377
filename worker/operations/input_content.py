"""Digests an input with what decides its answers, so that the same one finds its batch again."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from schemas.job import JobRequest
from tasks.ports import Content, NewJob
from tasks.prompting.template_files import prompt_hash
from worker.providers.registry import ConfiguredProviders
from worker.providers.vendors import VENDORS
from worker.settings import Settings

_DECISIVE = {
    "model", "fallbacks", "strictness", "judge", "default_judge_share", "judge_max_tokens", "prompts", "local_model", "checkers",
}  # fmt: skip
"""Settings that decide an answer or its check, beside the provider and the calibration; the others only when and how fast."""

_ABOUT_SPEED = ("limits", "model_limits")
"""Fields of a provider that decide no answer."""


class SameInput(StrEnum):
    """The way of an input that was submitted before with the same settings."""

    TAKE_EARLIER = "take_earlier"
    PAY_ANEW = "pay_anew"


class ContentDigest:
    """SHA-256 over the jobs of an input in their order, and over what decides their answers; grows as they are read."""

    def __init__(self, basis: bytes) -> None:
        self._basis = basis
        self._digest = hashlib.sha256(basis)
        self._prompts: set[tuple[str, str | None]] = set()
        self._head = b""
        self._head_prompts: frozenset[tuple[str, str | None]] = frozenset()
        self.foreign_positions: set[int] | None = None
        """Positions after the first part of jobs by a prompt that it has not; None: nobody asks for them."""

    def add(self, job: NewJob, request: JobRequest) -> None:
        """Takes up the next job."""
        self._digest.update(job.position.to_bytes(8, "big") + job.request_hash)
        if not request.check_only:
            config = request.config
            prompt = (config.prompt_name or config.mode.value, config.prompt_version)
            self._prompts.add(prompt)
            if self.foreign_positions is not None and self._head and prompt not in self._head_prompts:
                self.foreign_positions.add(job.position)

    def end_head(self) -> None:
        """Ends the part that is known before the rest is read."""
        self._head, self._head_prompts = self._digest.digest(), frozenset(self._prompts)

    def content(self, *, lines: int, replaces: bool = False) -> Content:
        """The digests, once ``lines`` lines were read."""
        whole = self._digest.copy()
        # A template may change under a version's name, and the newest version may be another tomorrow.
        prompts = "".join(sorted(prompt_hash(name, version) for name, version in self._prompts))
        whole.update(prompts.encode() + lines.to_bytes(8, "big"))
        return Content(self._head, whole.digest(), self.basis(), replaces)

    def basis(self) -> bytes:
        """The digest of what decides the answers of the first part, without its jobs: settings, prompts and their texts."""
        prompts = sorted((name, version or "", prompt_hash(name, version)) for name, version in self._head_prompts)
        return hashlib.sha256(self._basis + orjson.dumps(prompts)).digest()


def basis_of(settings: Settings, *, check_only: bool, environment: Mapping[str, str] | None = None) -> bytes:
    """The settings that decide answers, as bytes; without keys."""
    variables = os.environ if environment is None else environment
    providers = {name: provider.model_dump(mode="json") for name, provider in settings.providers.items()}
    for provider in providers.values():
        for field in _ABOUT_SPEED:
            provider.pop(field, None)
    path = settings.calibration
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path is not None and path.is_file() else None
    facts: dict[str, Any] = settings.model_dump(mode="json", include=_DECISIVE)
    facts |= {
        "check_only": check_only,
        "provider": ConfiguredProviders(settings, variables).default,
        "providers": providers,
        "addresses": [variables.get(vendor.base_url_variable) for vendor in VENDORS.values()],
        "calibration": digest,
    }
    return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)


def readable_twice(files: Iterable[str]) -> bool:
    """Tells files from standard input and pipes, of which nothing is left once they were read."""
    return all(Path(name).is_file() for name in files)
