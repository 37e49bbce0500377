"""Names the model that answers jobs which name none, and its price: the first thing to know of a run."""

from schemas.generation import Lane
from schemas.model_call import Usage
from worker.providers.registry import ConfiguredProviders
from worker.settings import ProviderKind, Settings

_MILLION = 1_000_000
_TOKENS = 1_000
"""Few enough for the price of a short prompt."""


def answering_line(settings: Settings) -> str:
    """The model, where it is and what it costs, in a line; raises ``ConfigurationError``."""
    providers = ConfiguredProviders(settings)
    name = providers.default
    if providers.kind_of(name) is ProviderKind.EXTRACTIVE:
        return f"answers by {name}: quotes of the sources, offline and free (no key is set, or none is wanted)"
    model = providers.model_of(name, None)
    target = f"{name}:{model}" if model else name
    rates = [
        providers.usage_usd(name, model, usage, Lane.STANDARD.value)
        for usage in (Usage(input_tokens=_TOKENS), Usage(output_tokens=_TOKENS))
    ]
    if None in rates:
        return f"answers by {target}: its price is not known, so no cost is counted"
    per_in, per_out = (f"{float(rate or 0) * _MILLION / _TOKENS:.4g}" for rate in rates)
    return f"answers by {target}: {per_in} USD a million tokens in, {per_out} out"
