"""A directory with an ONNX model and its tokenizer becomes a layer of the check, and says so when it can't."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from schemas.grounding import Verdict
from schemas.job import GenerationConfig, JobRequest
from tasks.answers.postprocess import postprocess
from tasks.errors import ConfigurationError
from tasks.grounding import ground, use_local_model
from tasks.ports import ClaimScorer
from worker.scorers import scorer_of
from worker.settings import Settings

if any(find_spec(name) is None for name in ("onnx", "onnxruntime", "tokenizers")):
    pytest.skip("make test-onnx installs the extra", allow_module_level=True)

from tests.onnx import tiny
from worker.scorers.onnx import OnnxScorer

SOURCE = "The desk opens at nine in the evening."
SUPPORTED = "The desk opens at nine."
WRONG = "The desk opens at eight in the morning."
FILLER = "filler " * 400


def loaded(directory: Path) -> ClaimScorer:
    scorer = scorer_of(Settings(local_model=str(directory)))
    assert scorer is not None
    return scorer


def scores(directory: Path, *pairs: tuple[str, str]) -> list[float]:
    return list(loaded(directory).score(pairs))


def test_pairs_of_all_lengths_are_scored_in_their_order(tmp_path: Path) -> None:
    pairs = [(SOURCE, WRONG), ("lamp", "The lamp."), (SOURCE * 3, SUPPORTED), ("pets", SUPPORTED)]
    expected = [1 - 2 * 2, 1 - 2 * 2, 1, 1 - 2 * 6]
    assert scores(tiny.cross_encoder(tmp_path / "one"), *pairs) == pytest.approx(expected)
    assert scores(tiny.cross_encoder(tmp_path / "single", batch=1), *pairs) == pytest.approx(expected)
    assert scores(tmp_path / "one") == []


def test_the_settings_name_the_threads_of_a_computation(tmp_path: Path) -> None:
    directory = tiny.cross_encoder(tmp_path / "model")
    for threads in (1, 3):
        scorer = scorer_of(Settings(local_model=str(directory), local_model_threads=threads))
        assert isinstance(scorer, OnnxScorer)
        assert scorer._session.get_session_options().intra_op_num_threads == threads


def test_long_evidence_is_cut_at_its_end_and_the_claim_never(tmp_path: Path) -> None:
    directory = tiny.cross_encoder(tmp_path / "model", max_length=32)
    assert scores(directory, (SOURCE + FILLER, SUPPORTED)) == pytest.approx([1])
    assert scores(directory, (FILLER + SOURCE, SUPPORTED)) == pytest.approx([1 - 2 * 6])
    (endless,) = scores(directory, (SOURCE, "lamp " * 400))
    assert endless < 0


def test_a_source_that_spells_out_control_tokens_stays_a_source(tmp_path: Path) -> None:
    directory = tiny.cross_encoder(tmp_path / "model")
    assert scores(directory, (f"{SOURCE} [SEP] lamp [CLS]", SUPPORTED)) == pytest.approx([1])
    decoder = tiny.decoder(
        tmp_path / "decoder",
        prompt="predict: {evidence} [SEP] {claim}",
        output="first_token",
        positive=tiny.VOCABULARY["[SEP]"],
        negative=tiny.VOCABULARY["no"],
    )
    # One of the template between the two, one at the end; none of the source.
    assert scores(decoder, ("desk [SEP] [SEP]", "desk {evidence} [SEP]")) == pytest.approx([2])


def test_the_least_supported_token_of_the_claim_counts(tmp_path: Path) -> None:
    directory = tiny.token_tagger(tmp_path / "model", output="claim_tokens", positive=1, negative=0)
    assert scores(directory, (SOURCE, SUPPORTED), (SOURCE, "The lamp opens at nine.")) == pytest.approx([1, -2])


def test_a_decoder_says_it_by_two_of_its_words(tmp_path: Path) -> None:
    card = {"prompt": "predict: {evidence} [SEP] {claim}", "output": "first_token"}
    yes, no = tiny.VOCABULARY["yes"], tiny.VOCABULARY["no"]
    directory = tiny.decoder(tmp_path / "model", **card, positive=yes, negative=no)
    assert scores(directory, ("yes yes", "no"), ("no", "no yes")) == pytest.approx([1, -1])
    other = tiny.decoder(tmp_path / "other", **card, positive=yes, negative=no, decoder_start=no)
    assert scores(other, ("yes yes", "no")) == pytest.approx([0])


def test_its_version_tells_one_export_from_another(tmp_path: Path) -> None:
    export = loaded(tiny.cross_encoder(tmp_path / "one"))
    again = loaded(tiny.cross_encoder(tmp_path / "again"))
    other = loaded(tiny.cross_encoder(tmp_path / "other", name="careful", max_length=64))
    assert (export.name, other.name) == ("one", "careful")
    assert export.version == again.version != other.version
    assert (export.max_tokens, other.max_tokens) == (512, 64)


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        ({"positive": 7}, "don't fit"),
        ({"prompt": "no places"}, "prompt holds {evidence} once"),
        ({"prompt": "{claim} {evidence}"}, "prompt holds {evidence} once"),
        ({"output": "first_token"}, "don't fit"),
        ({"max_lenght": 5}, "max_lenght"),
    ],
)
def test_a_card_that_does_not_fit_is_named(card: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        loaded(tiny.cross_encoder(tmp_path / "model", **card))


def test_a_directory_without_its_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"holds no model\.onnx"):
        loaded(tmp_path)
    directory = tiny.cross_encoder(tmp_path / "model")
    (directory / "model.onnx").write_bytes(b"no model")
    with pytest.raises(ConfigurationError, match="can't be loaded"):
        OnnxScorer(directory)
    (directory / "tokenizer.json").unlink()
    with pytest.raises(ConfigurationError, match=r"holds no tokenizer\.json"):
        OnnxScorer(directory)


@pytest.fixture
def _without_model() -> Iterator[None]:
    yield
    use_local_model(None)


@pytest.mark.usefixtures("_without_model")
def test_it_decides_what_the_words_leave_open(tmp_path: Path) -> None:
    use_local_model(loaded(tiny.cross_encoder(tmp_path / "model")))
    config = GenerationConfig(checkers=("structure", "lexical", "local"))
    request = JobRequest(
        response="The warranty of the lamp lasts two years.", context=[f"{SOURCE} The lamp."], config=config
    )
    grounding = ground(request, postprocess(request, None, None))
    (claim,) = grounding.claims
    assert claim.verdict is Verdict.UNSUPPORTED
    assert claim.checker == "local"
    assert "the local model model gives the best passage 0.15" in claim.reason
