"""``nightdesk init``: a folder with a settings file and a home, for all commands in it and below."""

from pathlib import Path
from typing import Annotated

from tasks.errors import InputError
from worker.cli import options
from worker.cli.exits import OK
from worker.cli.help import argument
from worker.cli.project import CONFIG, HOME
from worker.cli.terminal import tell, write_json
from worker.supervise.state_directory import StateDirectory

TEMPLATE = """\
# Settings of this project, for every nightdesk command in this folder and below.
# All of them: docs/configure.md, or 'nightdesk schema' for those of a job. A variable NIGHTDESK_... goes before a line here.
# Keys are never written here: they stay in OPENAI_API_KEY, ANTHROPIC_API_KEY or the variable that api_key_env names.

# Who answers jobs that name no provider or model. Unset: the provider whose key is set, else quotes of the sources.
# provider = "openai"
# model = "gpt-5-mini"
# fallbacks = ["anthropic"]

# The most that a judge may add to the cost of an answer; 0: no judge but where a job asks for one.
# default_judge_share = 0.15

# Calls at once and a minute, over all workers.
# slots = 1000
# requests_per_minute = 500

# Delete what ended long ago, by the workers themselves.
# prune_content_after_days = 90
# prune_rows_after_days = 400
# prune_batches_after_days = 800

# Servers of your own in place of the embedded ones: both or neither.
# database_url = "postgresql://nightdesk@db.example/nightdesk"
# redis_url = "redis://redis.example/0"

# A server of your own, to be named as a provider.
# [providers.local]
# preset = "vllm"
# base_url = "http://localhost:8000/v1"
# model = "meta-llama/Llama-3.2-3B-Instruct"
"""
"""Of a new settings file; tables stand last, as TOML wants it."""


def init(
    folder: Annotated[str, argument("The folder; it is made if it isn't there.", "[FOLDER]")] = ".",
    as_json: options.Json = False,
) -> int:
    """Make a project: a settings file with comments, and a home for the ledger, in one folder.

    Commands in that folder and below use both; NIGHTDESK_HOME and NIGHTDESK_CONFIG go before.
    """
    root = Path(folder).expanduser().absolute()
    config = root / CONFIG
    try:
        root.mkdir(parents=True, exist_ok=True)
        with config.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except FileExistsError:
        raise InputError(f"{config} is there already: edit it, or give another folder") from None
    except OSError as error:
        raise InputError(f"{root} can't be used ({error.strerror}): give a folder of yours") from error
    state = StateDirectory(root / HOME)
    state.create()
    # Answers and passwords are nothing for a repository.
    (state.root / ".gitignore").write_text("*\n", encoding="utf-8")
    if as_json:
        write_json({"folder": str(root), "config": str(config), "home": str(state.root)})
    else:
        tell(f"made {config} and {state.root}/")
        tell("commands in this folder and below use them; next: edit the settings, then 'nightdesk run FILE -o OUT'")
    return OK
