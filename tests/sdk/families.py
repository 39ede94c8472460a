"""The official SDKs with strict tools and schemas, on a random-weight model of every family:

    python families.py target/ci/bantam tests/fixtures/models

Needs `pip install openai anthropic`. Such a model says nothing of sense, so what has a form has it by the grammar alone: by
each family's own syntax of calls, behind its own marks of reasoning, over three protocols, whole and streamed.
"""

import pathlib
import re
import struct
import subprocess
import sys
import tempfile
from enum import Enum
from typing import Literal

import anthropic
import openai
from pydantic import BaseModel, ConfigDict, Field

ASK = [{"role": "user", "content": "Look!"}]
# Calls and answers of a random model are as long as their schema lets them be.
ROOM = 700
CONTEXT = 8192


class Side(Enum):
    left = "left"
    right = "right"


class Place(BaseModel):
    model_config = ConfigDict(extra="forbid")
    side: Side
    steps: int = Field(ge=0, le=99)


class look(BaseModel):
    """Looks somewhere."""

    model_config = ConfigDict(extra="forbid")
    at: Place
    what: str = Field(max_length=12)
    also: list[Literal["near", "far"]] = Field(min_length=1, max_length=2)
    why: str | None = Field(max_length=8)


ASKED = {"max_tokens": ROOM, "temperature": 1.0, "seed": 1}


def chat(client: openai.OpenAI, model: str):
    tool = openai.pydantic_function_tool(look)
    asked = ASKED | {"model": model, "messages": ASK, "reasoning_effort": "none"}
    required = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    whole = client.chat.completions.parse(**asked, **required)
    assert whole.choices[0].finish_reason == "tool_calls", whole
    called(whole.choices[0].message.tool_calls[0].function.parsed_arguments)
    with client.chat.completions.stream(**asked, **required) as stream:
        streamed = stream.get_final_completion()
    assert [call.function.arguments for call in streamed.choices[0].message.tool_calls] == [
        call.function.arguments for call in whole.choices[0].message.tool_calls
    ]
    held = client.chat.completions.parse(**asked, response_format=look)
    called(held.choices[0].message.parsed)


def responses(client: openai.OpenAI, model: str):
    tool = {"type": "function", "name": "look", "strict": True, "parameters": SCHEMA}
    asked = {"model": model, "input": "Look!", "max_output_tokens": ROOM, "reasoning": {"effort": "none"}}
    named = {"type": "function", "name": "look"}
    whole = client.responses.create(**asked, tools=[tool], tool_choice=named, parallel_tool_calls=False)
    calls = [item for item in whole.output if item.type == "function_call"]
    assert whole.status == "completed" and calls, whole
    called(look.model_validate_json(calls[0].arguments))
    held = client.responses.parse(**asked, text_format=look)
    called(held.output_parsed)


def messages(client: anthropic.Anthropic, model: str):
    tool = {"name": "look", "description": "Looks somewhere.", "input_schema": SCHEMA, "strict": True}
    asked = {"model": model, "messages": ASK, "max_tokens": ROOM, "thinking": {"type": "disabled"}}
    whole = client.messages.create(**asked, tools=[tool], tool_choice={"type": "any"} | ONE)
    uses = [block for block in whole.content if block.type == "tool_use"]
    assert whole.stop_reason == "tool_use" and uses, whole
    called(look.model_validate(uses[0].input))
    with client.messages.stream(**asked, tools=[tool], tool_choice={"type": "tool", "name": "look"} | ONE) as stream:
        uses = [block for block in stream.get_final_message().content if block.type == "tool_use"]
    called(look.model_validate(uses[0].input))


def called(arguments):
    """What a strict schema promises, with the bounds that types do not tell."""
    assert isinstance(arguments, look), arguments


SCHEMA = look.model_json_schema()
# A random model calls for as long as it may.
ONE = {"disable_parallel_tool_use": True}


def roomy(file: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """A copy of the model that says it was trained for longer texts: its tokens are letters, and tools take many."""
    data = bytearray(file.read_bytes())
    key = re.search(rb"\.context_length\x04\x00\x00\x00", data)
    data[key.end() : key.end() + 4] = struct.pack("<I", CONTEXT)
    copy = folder / "model.gguf"
    copy.write_bytes(data)
    return copy


def serve(binary: str, file: pathlib.Path):
    """The server of a model, and where it listens."""
    command = [binary, "serve", str(file), "--port", "0", "--context", str(CONTEXT), "--parallel", "2"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    said = []
    for line in server.stderr:
        said.append(line)
        if found := re.search(r"listening on (http://\S+)", line):
            return server, found[1]
    raise SystemExit(f"{file}: the server ended before it listened:\n{''.join(said)}")


def main():
    binary, models = sys.argv[1], pathlib.Path(sys.argv[2])
    only = sys.argv[3:]
    failed = []
    for file in sorted(models.glob("*/model.gguf")):
        name = file.parent.name
        if only and name not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            server, url = serve(binary, roomy(file, pathlib.Path(folder)))
        try:
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)
            model = client.models.list().data[0].id
            for check, of in [
                (chat, client),
                (responses, client),
                (messages, anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=300)),
            ]:
                try:
                    check(of, model)
                except Exception as fault:
                    failed.append(f"{name}, {check.__name__}: {type(fault).__name__}: {fault}"[:600])
                    print(failed[-1], flush=True)
            print(f"{name}: ok" if not any(f.startswith(f"{name},") for f in failed) else f"{name}: FAILED", flush=True)
        finally:
            server.kill()
            server.wait()
    if failed:
        raise SystemExit(f"{len(failed)} of the checks failed")


main()
