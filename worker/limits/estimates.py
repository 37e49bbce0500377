"""What a call will probably use, learned from the calls before it."""

BYTES_A_TOKEN = 3.0
"""Of a request's body, before the first answer: rather too many tokens than too few."""

WEIGHT = 0.1
"""Of the newest answer in the moving average."""


class Estimate:
    """Moving averages of one provider and model: tokens a byte of the request, and tokens of an answer."""

    def __init__(self) -> None:
        self._tokens_a_byte: float | None = None
        self._answer_tokens: float | None = None

    def input_tokens(self, body_bytes: int) -> float:
        """Tokens that a request of so many bytes has."""
        per_byte = 1 / BYTES_A_TOKEN if self._tokens_a_byte is None else self._tokens_a_byte
        return body_bytes * per_byte

    def output_tokens(self, most: int) -> float:
        """Tokens that the answer will have, of which ``most`` are allowed."""
        return float(most) if self._answer_tokens is None else min(self._answer_tokens, float(most))

    def learn(self, body_bytes: int, input_tokens: int, output_tokens: int) -> None:
        """Take in what a call used."""
        if body_bytes and input_tokens:
            self._tokens_a_byte = _moved(self._tokens_a_byte, input_tokens / body_bytes)
        if output_tokens:
            self._answer_tokens = _moved(self._answer_tokens, float(output_tokens))


def _moved(average: float | None, newest: float) -> float:
    return newest if average is None else average + WEIGHT * (newest - average)
