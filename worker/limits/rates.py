"""The limits of the settings for each provider and model."""

from dataclasses import dataclass

from worker.settings import LimitSettings, ProviderSettings, Settings

DIMENSIONS = ("requests", "input_tokens", "output_tokens", "tokens")
"""The limits per minute; ``tokens`` is input and output together, which only providers set (in their headers)."""

REQUESTS, INPUT, OUTPUT, TOKENS = range(len(DIMENSIONS))

PERIOD_S = 60.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The limits of one provider and model.

    Attributes:
        most: per period, in the order of ``DIMENSIONS``; 0 is no limit.
        concurrency: calls at once over all workers; 0 is no limit.
        period_s: a minute; tests take less.
    """

    most: tuple[float, ...] = (0.0,) * len(DIMENSIONS)
    concurrency: int = 0
    period_s: float = PERIOD_S

    @property
    def any(self) -> bool:
        """True if anything is limited."""
        return bool(self.concurrency) or any(self.most)


def rates_of(settings: Settings, provider: str, model: str, period_s: float = PERIOD_S) -> Rates:
    """The limits of a provider's model: the model's own before the provider's, before the defaults."""
    own: ProviderSettings | None = settings.providers.get(provider)
    layers: list[LimitSettings | None] = [settings.default_limits]
    if own is not None:
        layers += [own.limits, (own.model_limits or {}).get(model)]
    merged: dict[str, float] = {}
    for layer in layers:
        if layer is not None:
            merged.update(layer.model_dump(exclude_none=True))
    most = (
        merged.get("requests_per_minute", 0.0),
        merged.get("input_tokens_per_minute", 0.0),
        merged.get("output_tokens_per_minute", 0.0),
        0.0,
    )
    return Rates(most, int(merged.get("max_concurrency", 0)), period_s)
