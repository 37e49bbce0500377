"""Objects to configs that this installation can't serve, by its settings alone, without building a provider."""

from collections.abc import Iterator, Mapping

from schemas.generation import CheckerName, GenerationConfig, Lane
from tasks.calls.paid_call import UNPRICED
from tasks.ports import Catalog, Objection, Turn
from worker.providers.registry import ConfiguredProviders
from worker.settings import ProviderKind, Settings

LANES_SERVED = (Lane.STANDARD, Lane.AUTO)

MOST_REMEMBERED = 1_000
"""Configs whose objections are kept: a file's jobs share few."""

_Key = tuple[str | None, str | None, tuple[str, ...], Lane, str | None, bool, bool]


class Installation(Catalog):
    """``tasks.ports.Catalog`` of the settings of this process.

    Args:
        settings: of this process.
        same_for_workers: the workers have these settings too, keys included. Else a provider that is unknown
            here may be known there, and only the lanes are certain.
        environment: where keys are; the process's own unless given.
    """

    def __init__(
        self, settings: Settings, *, same_for_workers: bool, environment: Mapping[str, str] | None = None
    ) -> None:
        self._providers = ConfiguredProviders(settings, environment)
        self._certain = same_for_workers
        self._cache: dict[_Key, tuple[Objection, ...]] = {}

    def objections(self, config: GenerationConfig, *, generates: bool, priced: bool) -> tuple[Objection, ...]:
        """See ``tasks.ports.Catalog``."""
        judge = config.judge if CheckerName.JUDGE in config.checkers else None
        key = (config.provider, config.model, config.fallbacks, config.lane, judge, generates, priced)
        if (objections := self._cache.get(key)) is None:
            objections = (*self._of_the_answer(config, priced=priced),) if generates else ()
            if judge is not None:
                objections = (*objections, *self._of_the_judge(judge, priced=priced))
            if len(self._cache) < MOST_REMEMBERED:
                self._cache[key] = objections
        return objections

    def _of_the_answer(self, config: GenerationConfig, *, priced: bool) -> Iterator[Objection]:
        if config.lane not in LANES_SERVED:
            served = " or ".join(repr(lane.value) for lane in LANES_SERVED)
            yield Objection("config.lane", f"the lane {config.lane.value!r} is not served; use {served}")
        # Without the workers' settings nobody knows their default.
        if config.provider is not None or self._certain:
            yield from self._of_turn(Turn(config.provider or self._providers.default, config.model), priced=priced)
        for at, text in enumerate(config.fallbacks):
            field = f"config.fallbacks.{at}"
            for objection in self._of_turn(Turn.parse(text), priced=priced):
                yield Objection(field, objection.message, objection.certain)

    def _of_turn(self, turn: Turn, *, priced: bool) -> Iterator[Objection]:
        providers = self._providers
        if (unusable := self._unusable(turn.provider)) is not None:
            yield Objection("config.provider", unusable, self._certain)
        elif providers.decides(turn.provider):
            yield Objection("config.provider", f"{turn.provider!r} only judges, it writes no answer", self._certain)
        elif providers.needs_model(turn.provider) and turn.model is None and self._certain:
            yield Objection("config.model", f"{turn.provider!r} has no default model: name one here or in its settings")
        elif priced and not providers.has_price(turn.provider, turn.model):
            yield Objection("config.model", self._unpriced(turn), self._certain)

    def _of_the_judge(self, judge: str, *, priced: bool) -> Iterator[Objection]:
        turn = Turn.parse(judge)
        if (unusable := self._unusable(turn.provider)) is not None:
            yield Objection("config.judge", unusable, self._certain)
        elif self._providers.kind_of(turn.provider) is ProviderKind.EXTRACTIVE:
            yield Objection("config.judge", f"{turn.provider!r} quotes sentences and can't judge", self._certain)
        elif priced and not self._providers.has_price(turn.provider, turn.model):
            yield Objection("config.judge", self._unpriced(turn), self._certain)

    def _unusable(self, name: str) -> str | None:
        """The reason that a provider can't be called, by these settings; None without one."""
        providers = self._providers
        if providers.kind_of(name) is None:
            return f"no provider {name!r} is configured; there is {', '.join(providers.names)}"
        if self._certain and (variable := providers.missing_key(name)) is not None:
            return f"the provider {name!r} needs a key: set {variable}"
        return None

    def _unpriced(self, turn: Turn) -> str:
        return UNPRICED.format(self._providers.model_of(turn.provider, turn.model), turn.provider)
