"""Writes tiny ONNX models that really compute, with a tokenizer of a few words, as an operator's directory holds them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = (
    "[PAD] [UNK] [CLS] [SEP] yes no predict the desk opens at nine eight it in evening morning lamp lasts two years"
    " warranty of filler pets are allowed . :"
).split()
VOCABULARY = {word: number for number, word in enumerate(WORDS)}


def write_tokenizer(directory: Path) -> None:
    """[CLS] evidence [SEP] claim [SEP], words by white space; with cutting and padding set as exports often have it."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", VOCABULARY["[CLS]"]), ("[SEP]", VOCABULARY["[SEP]"])],
    )
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(directory / "tokenizer.json"))


def _constant(name: str, values: Any, kind: type = np.float32) -> Any:
    return onnx.numpy_helper.from_array(np.array(values, dtype=kind), name)


CONSTANTS = [
    _constant("depth", len(WORDS), np.int64),
    _constant("off_on", [0, 1]),
    _constant("one", 1),
    _constant("zero", 0),
    _constant("two", 2),
    _constant("axis_tokens", [1], np.int64),
    _constant("axis_last", [2], np.int64),
    _constant("axis_words", [1], np.int64),
]

BAGS = [
    helper.make_node("OneHot", ["input_ids", "depth", "off_on"], ["words"]),
    helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
    helper.make_node("Cast", ["token_type_ids"], ["kind"], to=TensorProto.FLOAT),
    helper.make_node("Sub", ["one", "kind"], ["not_kind"]),
    helper.make_node("Mul", ["mask", "not_kind"], ["of_evidence"]),
    helper.make_node("Mul", ["mask", "kind"], ["of_claim"]),
    helper.make_node("Unsqueeze", ["of_evidence", "axis_last"], ["of_evidence_3"]),
    helper.make_node("Unsqueeze", ["of_claim", "axis_last"], ["of_claim_3"]),
    helper.make_node("Mul", ["words", "of_evidence_3"], ["evidence_words"]),
    helper.make_node("Mul", ["words", "of_claim_3"], ["claim_words"]),
    helper.make_node("ReduceMax", ["evidence_words"], ["evidence"], axes=[1], keepdims=0),
    helper.make_node("ReduceMax", ["claim_words"], ["claim"], axes=[1], keepdims=0),
]
"""``evidence`` and ``claim``: which words stand in either, shape (pairs, words)."""


def _write(directory: Path, nodes: list[Any], inputs: list[str], shape: list[str | int]) -> None:
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["pairs", "tokens"]) for name in inputs],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)],
        CONSTANTS,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.checker.check_model(model)
    directory.mkdir(parents=True, exist_ok=True)
    onnx.save(model, directory / "model.onnx")
    write_tokenizer(directory)


def cross_encoder(directory: Path, **card: Any) -> Path:
    """Labels [2 x words of the claim that are not in the evidence, 1]: log-odds of 1 when all are there."""
    nodes = [
        *BAGS,
        helper.make_node("Sub", ["claim", "evidence"], ["difference"]),
        helper.make_node("Relu", ["difference"], ["absent"]),
        helper.make_node("ReduceSum", ["absent", "axis_words"], ["missing"], keepdims=1),
        helper.make_node("Mul", ["missing", "two"], ["against"]),
        helper.make_node("Mul", ["missing", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "one"], ["for"]),
        helper.make_node("Concat", ["against", "for"], ["logits"], axis=1),
    ]
    _write(directory, nodes, ["input_ids", "attention_mask", "token_type_ids"], ["pairs", 2])
    return _with_card(directory, card)


def token_tagger(directory: Path, **card: Any) -> Path:
    """For each token the labels [2 if it is not in the evidence, 1 if it is]."""
    nodes = [
        *BAGS,
        helper.make_node("Unsqueeze", ["evidence", "axis_tokens"], ["evidence_3"]),
        helper.make_node("Mul", ["words", "evidence_3"], ["words_held"]),
        helper.make_node("ReduceSum", ["words_held", "axis_last"], ["held"], keepdims=1),
        helper.make_node("Sub", ["one", "held"], ["not_held"]),
        helper.make_node("Mul", ["not_held", "two"], ["against"]),
        helper.make_node("Concat", ["against", "held"], ["logits"], axis=2),
    ]
    _write(directory, nodes, ["input_ids", "attention_mask", "token_type_ids"], ["pairs", "tokens", 2])
    return _with_card(directory, card)


def decoder(directory: Path, **card: Any) -> Path:
    """The vocabulary at the decoder's first step: how often each word stands in the input, plus its start token's."""
    nodes = [
        helper.make_node("OneHot", ["input_ids", "depth", "off_on"], ["words"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "axis_last"], ["mask_3"]),
        helper.make_node("Mul", ["words", "mask_3"], ["counted"]),
        helper.make_node("ReduceSum", ["counted", "axis_tokens"], ["counts"], keepdims=1),
        helper.make_node("OneHot", ["decoder_input_ids", "depth", "off_on"], ["started"]),
        helper.make_node("Add", ["counts", "started"], ["logits"]),
    ]
    _write(directory, nodes, ["input_ids", "attention_mask", "decoder_input_ids"], ["pairs", 1, len(WORDS)])
    return _with_card(directory, card)


def _with_card(directory: Path, card: dict[str, Any]) -> Path:
    if card:
        (directory / "nightdesk.json").write_text(json.dumps(card))
    return directory
