"""Takes templates from a folder of the installation's own, each rendered once for a sample before a job has to."""

from itertools import product
from pathlib import Path

from schemas.generation import AnswerProtocol, OutputFormat
from schemas.job import GenerationConfig, JobRequest, SourceContext
from schemas.model_call import MessagesSnapshot, SourcePart
from tasks.errors import ConfigurationError, InputError
from tasks.prompting.messages import render
from tasks.prompting.template_files import SETTING, own_hashes, own_prompts
from tasks.prompting.templates import load, use_own_folder

_SOURCES = (
    SourceContext(content="The gate is closed at nine.", sub_query="gate"),
    SourceContext(content="The desk opens at eight.", sub_query="desk"),
)
_PLAIN = JobRequest(query="When is the gate closed?", context=_SOURCES)
_RICH = _PLAIN.model_copy(
    update={
        "config": GenerationConfig(
            role="a porter",
            audience="visitors",
            language="English",
            style="brief",
            plain_language=True,
            output_format=OutputFormat.STEPS,
            max_response_length=500,
        ),
        "aggregate": True,
        "system_instructions": "Be polite.",
        "conversation_history": (("user", "Hello."), ("assistant", "Good evening.")),
    }
)
_SAMPLES = (_PLAIN, _RICH)


def use_templates(folder: Path | None) -> None:
    """Makes this process read the templates of a folder beside the shipped ones; None: the shipped ones alone.

    Raises ``ConfigurationError`` with file and line for a folder or a template that can't be used.
    """
    if folder is not None and not folder.is_dir():
        raise ConfigurationError(f"{SETTING} names {folder}, which is no folder")
    try:
        use_own_folder(folder)
        for name, version in own_prompts():
            _try(name, version)
    except InputError as error:
        raise ConfigurationError(f"{SETTING}: {error}") from None


def _try(name: str, version: str) -> None:
    """Renders the samples with a prompt; raises ``InputError`` for one that breaks or leaves out what a job gives."""
    template = load(name, version)
    own_hashes[name, version] = template.sha256
    for sample, protocol in product(_SAMPLES, AnswerProtocol):
        config = sample.config.model_copy(update={"prompt_name": name, "prompt_version": version})
        snapshot = render(sample.model_copy(update={"config": config}), protocol).snapshot
        if missing := _missing(sample, snapshot):
            raise InputError(f"{template.path} {missing}")


def _missing(sample: JobRequest, snapshot: MessagesSnapshot) -> str:
    """The part of a job that the messages lack, in words; empty: nothing."""
    if not snapshot.messages:
        return 'opens no message: begin it with {{ message("system") }}, or with {% extends "_frame@2.j2" %}'
    if not any(sample.query in text for _, text in snapshot.texts([source.content for source in sample.context])):
        return "never shows the question: put {{ query }} into it"
    numbers = {
        part.source_index for message in snapshot.messages for part in message.parts if isinstance(part, SourcePart)
    }
    if len(numbers) < len(sample.context):
        return "does not show every source: put {{ source.words }} of each source in sources into it"
    return ""
