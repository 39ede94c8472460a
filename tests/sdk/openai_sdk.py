"""OpenAI's own SDK and the conversations and texts of a running server: python openai_sdk.py http://127.0.0.1:8000 [API_KEY]

Needs `pip install openai`. What the model says does not matter, only how it is told.
"""

import concurrent.futures
import json
import sys

import openai
from pydantic import BaseModel

BASE = sys.argv[1].rstrip("/")
KEY = sys.argv[2] if len(sys.argv) > 2 else "none"
client = openai.OpenAI(base_url=f"{BASE}/v1", api_key=KEY, max_retries=0, timeout=300)
MODEL = client.models.list().data[0].id
ASK = [{"role": "user", "content": "Say hello to the crew in one short sentence."}]
LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks somewhere.",
        "parameters": {
            "type": "object",
            "properties": {"at": {"type": "string", "maxLength": 20}, "n": {"type": "integer"}},
            "required": ["at", "n"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


def chat(**fields):
    return client.chat.completions.create(
        **{"model": MODEL, "messages": ASK, "max_tokens": 24, "temperature": 0, "reasoning_effort": "none"} | fields
    )


def whole_and_streamed():
    whole = chat()
    assert whole.object == "chat.completion" and whole.model == MODEL
    assert whole.choices[0].finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0


def choices_and_probabilities():
    told = chat(n=3, temperature=1.5, seed=7, logprobs=True, top_logprobs=2)
    assert [choice.index for choice in told.choices] == [0, 1, 2]
    for choice in told.choices:
        assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)
    alone = chat(temperature=1.5, seed=7)
    assert alone.choices[0].message.content == told.choices[0].message.content


def texts():
    told = client.completions.create(model=MODEL, prompt=["One", "Two"], n=2, max_tokens=8, echo=True, temperature=0)
    assert [choice.text[:3] for choice in told.choices] == ["One", "One", "Two", "Two"]
    stopped = client.completions.create(model=MODEL, prompt="a", max_tokens=64, stop=["e"], temperature=0)
    assert "e" not in stopped.choices[0].text


def tools():
    # Small models call again and again where they may.
    once = {"tools": [LOOK], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 400}
    asked = chat(**once)
    message = asked.choices[0].message
    call = message.tool_calls[0]
    arguments = json.loads(call.function.arguments)
    assert asked.choices[0].finish_reason == "tool_calls" and call.function.name == "look"
    assert set(arguments) == {"at", "n"} and isinstance(arguments["n"], int)
    streamed = [chunk.choices[0] for chunk in chat(**once, stream=True)]
    pieces = [piece for choice in streamed for piece in choice.delta.tool_calls or [] if piece.index == 0]
    assert pieces[0].id and pieces[0].function.name == "look"
    assert "".join(piece.function.arguments or "" for piece in pieces) == call.function.arguments
    assert streamed[-1].finish_reason == "tool_calls"
    history = ASK + [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "Nothing."}]
    assert chat(messages=history, tools=[LOOK]).choices[0].finish_reason in ("stop", "length", "tool_calls")


class Bird(BaseModel):
    name: str
    legs: int


def structured():
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    told = chat(response_format=form, max_tokens=100)
    assert isinstance(json.loads(told.choices[0].message.content)["ok"], bool)
    parsed = client.chat.completions.parse(
        model=MODEL, messages=ASK, response_format=Bird, max_tokens=800, temperature=0, reasoning_effort="none"
    )
    assert isinstance(parsed.choices[0].message.parsed, Bird)
    chosen = chat(extra_body={"guided_choice": ["port", "starboard"]})
    assert chosen.choices[0].message.content in ("port", "starboard")


def refused(kind, param, **fields):
    try:
        chat(**fields)
    except kind as error:
        assert error.param == param, error
        return error
    raise AssertionError(f"{fields} was taken")


def errors():
    refused(openai.BadRequestError, "temperature", temperature=-1)
    refused(openai.BadRequestError, "messages[0].role", messages=[{"role": "robot", "content": "x"}])
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}
    error = refused(openai.BadRequestError, "response_format.json_schema.schema", response_format=form)
    assert "`not`" in error.message and error.request_id.startswith("req_")
    full = refused(openai.BadRequestError, "messages", messages=[{"role": "user", "content": "word " * 200_000}])
    assert full.code == "context_length_exceeded"


def crowds():
    """More at once than the server admits: retries bring all to their end."""
    patient = client.with_options(max_retries=20)
    ask = lambda i: patient.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": f"Number {i}"}], max_tokens=4
    )
    with concurrent.futures.ThreadPoolExecutor(96) as pool:
        assert all(told.choices for told in pool.map(ask, range(96)))


for check in (whole_and_streamed, choices_and_probabilities, texts, tools, structured, errors, crowds):
    check()
    print(f"ok {check.__name__}")
