"""Every object and event of a running server against the types of the official SDKs, field by field, and the order of the
events: python shapes.py http://127.0.0.1:8000 [API_KEY]

Needs `pip install openai anthropic`. The SDKs themselves take what comes as it is; here each type is held to its declaration.
"""

import json
import sys
import urllib.error
import urllib.request

import anthropic.types as claude
from anthropic.types.beta_error_response import BetaErrorResponse
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from openai.types.responses.response_item_list import ResponseItemList
from pydantic import TypeAdapter

BASE = sys.argv[1].rstrip("/")
KEY = sys.argv[2] if len(sys.argv) > 2 else "none"
VERSION = {"anthropic-version": "2023-06-01"}
TEXT = "Say hello to the crew in one short sentence."
ASK = [{"role": "user", "content": TEXT}]
SCHEMA = {
    "type": "object",
    "properties": {"at": {"type": "string", "maxLength": 12}},
    "required": ["at"],
    "additionalProperties": False,
}
FUNCTION = {"name": "look", "description": "Looks somewhere.", "parameters": SCHEMA}
PATCH = {"type": "custom", "name": "patch", "description": "Edits files.", "format": {"type": "text"}}


ADAPTERS = {}


def held(kind, value):
    """The value, which must be of this type."""
    if id(kind) not in ADAPTERS:
        ADAPTERS[id(kind)] = TypeAdapter(kind)
    ADAPTERS[id(kind)].validate_python(value)
    return value


def ask(method, path, body=None, headers=None):
    """The response, whatever its status."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"} | (headers or {})
    asked = urllib.request.Request(BASE + path, data, headers, method=method)
    try:
        return urllib.request.urlopen(asked, timeout=300)
    except urllib.error.HTTPError as refused:
        return refused


def told(method, path, body=None, headers=None):
    """The object that is answered with."""
    answer = ask(method, path, body, headers)
    text = answer.read()
    assert answer.status == 200, (path, body, text)
    return json.loads(text)


def post(path, body):
    return told("POST", path, body)


def get(path, headers=None):
    return told("GET", path, headers=headers)


def stream(path, body=None):
    """The events' names and data."""
    answer = ask("GET", path) if body is None else ask("POST", path, body | {"stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.read()
    events, name = [], None
    for line in answer:
        line = line.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            events.append((name, line[6:]))
            name = None
    return events


def chats():
    tool = {"type": "function", "function": FUNCTION}
    asks = [
        {},
        {"n": 2, "logprobs": True, "top_logprobs": 2},
        {"tools": [tool], "tool_choice": "required", "max_tokens": 200},
        {"response_format": {"type": "json_object"}, "reasoning_effort": "low"},
        {"stop": ["e"], "logit_bias": {"5": -1}, "stream_options": {"include_usage": True}},
    ]
    for more in asks:
        asked = {"messages": ASK, "max_tokens": 24, "temperature": 0} | more
        whole = held(ChatCompletion, post("/v1/chat/completions", {k: v for k, v in asked.items() if k != "stream_options"}))
        data = [data for _, data in stream("/v1/chat/completions", asked)]
        assert data[-1] == "[DONE]", data[-1]
        chunks = [held(ChatCompletionChunk, json.loads(piece)) for piece in data[:-1]]
        assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
        for index in range(more.get("n", 1)):
            own = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
            assert own[0]["delta"]["role"] == "assistant" and all("role" not in choice["delta"] for choice in own[1:])
            assert [bool(choice["finish_reason"]) for choice in own] == [False] * (len(own) - 1) + [True]
            assert own[-1]["delta"] == {} and own[-1]["finish_reason"] == whole["choices"][index]["finish_reason"]
            calls = [call for choice in own for call in choice["delta"].get("tool_calls", [])]
            begun = [call["index"] for call in calls if "id" in call]
            assert begun == list(range(len(begun))), begun
        usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
        assert usages == ([chunks[-1]["usage"]] if "stream_options" in more else []), usages
        if usages:
            assert chunks[-1]["choices"] == [] and usages[0].keys() == whole["usage"].keys()


def texts():
    for more in [{}, {"n": 2, "logprobs": 2}, {"echo": True, "stream_options": {"include_usage": True}}]:
        asked = {"prompt": "One, two", "max_tokens": 8, "temperature": 0} | more
        held(Completion, post("/v1/completions", {k: v for k, v in asked.items() if k != "stream_options"}))
        data = [data for _, data in stream("/v1/completions", asked)]
        assert data[-1] == "[DONE]", data[-1]
        for piece in data[:-1]:
            piece = json.loads(piece)
            # A piece has no reason to have ended; the type knows whole answers only.
            for choice in piece["choices"]:
                choice["finish_reason"] = choice["finish_reason"] or "stop"
            held(Completion, piece)


# What stands between an item's `added` and `done`.
WITHIN = {
    "output_text": ("content_part.added", "output_text.delta", "output_text.done", "content_part.done"),
    "reasoning_text": ("content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"),
    "summary": (
        "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ),
    "function_call": (None, "function_call_arguments.delta", "function_call_arguments.done", None),
    "custom_tool_call": (None, "custom_tool_call_input.delta", "custom_tool_call_input.done", None),
}


def ordered(events, status):
    """The items of a stream of events, each of which is of its type and in its place."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        held(ResponseStreamEvent, event)
    names = [event["type"].removeprefix("response.") for event in events]
    assert names[:2] == ["created", "in_progress"] and names[-1] == status, names
    rest = [(name, event) for name, event in zip(names[2:-1], events[2:-1]) if name != "in_progress"]
    items = []
    while rest:
        name, added = rest.pop(0)
        assert name == "output_item.added" and added["output_index"] == len(items), (name, names)
        item = added["item"]
        kind = item["type"]
        if kind in ("message", "reasoning"):
            kind = "summary" if rest[0][0].startswith("reasoning_summary") else rest[0][1]["part"]["type"]
        first, delta, done, last = WITHIN[kind]
        if first:
            assert rest.pop(0)[0] == first, names
        pieces = ""
        while rest[0][0] == delta:
            pieces += rest.pop(0)[1]["delta"]
        end = rest.pop(0)
        assert end[0] == done, (end[0], names)
        assert pieces == next(end[1][key] for key in ("text", "arguments", "input") if key in end[1])
        assert end[1]["item_id"] == item["id"] and end[1]["output_index"] == len(items)
        if last:
            assert rest.pop(0)[0] == last, names
        name, ended = rest.pop(0)
        assert name == "output_item.done" and ended["item"]["id"] == item["id"], names
        items.append(ended["item"])
    assert events[-1]["response"]["output"] == items
    return items


def responses():
    call = {"type": "function"} | FUNCTION
    asks = [
        {"instructions": "Be brief.", "metadata": {"a": "b"}},
        {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
        {"reasoning": {"effort": "high", "summary": "auto"}, "include": ["reasoning.encrypted_content"], "max_output_tokens": 200},
        {"reasoning": {"effort": "high"}, "max_output_tokens": 200},
        {"tools": [call], "tool_choice": "required", "max_output_tokens": 200},
        {"tools": [PATCH], "tool_choice": {"type": "custom", "name": "patch"}, "max_output_tokens": 100},
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}, "max_output_tokens": 100},
    ]
    for more in asks:
        asked = {"input": TEXT, "max_output_tokens": 24, "temperature": 0} | more
        whole = held(Response, post("/v1/responses", asked))
        events = [json.loads(data) for name, data in stream("/v1/responses", asked)]
        final = events[-1]["response"]
        assert final["status"] == whole["status"] and final.keys() == whole.keys()
        items = ordered(events, final["status"])
        assert [item["type"] for item in items] == [item["type"] for item in whole["output"]]
        path = f"/v1/responses/{final['id']}"
        assert held(Response, get(path)) == final
        assert [json.loads(data) for _, data in stream(f"{path}?stream=true")] == events
        assert [json.loads(data) for _, data in stream(f"{path}?stream=true&starting_after=2")] == events[3:]
        again = [json.loads(data) for _, data in stream(f"/v1/responses/{whole['id']}?stream=true")]
        assert ordered(again, whole["status"]) == whole["output"]
        held(ResponseItemList, get(f"{path}/input_items"))
        # What was answered is taken as it is when it comes back.
        history = [{"role": "user", "content": TEXT}, *whole["output"]]
        for item in whole["output"]:
            if item["type"] in ("function_call", "custom_tool_call"):
                history.append({"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "done"})
        history.append({"role": "user", "content": "Go on."})
        after = held(Response, post("/v1/responses", {"input": history, "max_output_tokens": 8, "tools": [call, PATCH]}))
        held(ResponseItemList, get(f"/v1/responses/{after['id']}/input_items?limit=100"))
        assert told("DELETE", path)["deleted"]
    begun = held(Response, post("/v1/responses", {"input": TEXT, "background": True, "max_output_tokens": 2000}))
    held(Response, post(f"/v1/responses/{begun['id']}/cancel", {}))
    held(InputTokenCountResponse, post("/v1/responses/input_tokens", {"input": TEXT}))


def messages():
    tool = {"name": "look", "description": "Looks somewhere.", "input_schema": SCHEMA}
    asks = [
        {},
        {"tools": [tool], "tool_choice": {"type": "any"}, "max_tokens": 200},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 300},
        {"thinking": {"type": "adaptive", "display": "omitted"}, "max_tokens": 300},
        {"stop_sequences": ["e"]},
    ]
    for more in asks:
        asked = {"model": "x", "max_tokens": 24, "temperature": 0, "messages": ASK} | more
        whole = held(claude.Message, post("/v1/messages", asked))
        named = [(name, json.loads(data)) for name, data in stream("/v1/messages", asked)]
        assert all(name == event["type"] for name, event in named)
        events = [event for name, event in named if name != "ping"]
        for event in events:
            held(claude.RawMessageStreamEvent, event)
        kinds = [event["type"] for event in events]
        assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"]), kinds
        assert named[1][0] == "ping", named[1]
        index, kind = -1, "content_block_stop"
        for event in events[1:-2]:
            if event["type"] == "content_block_start":
                assert kind == "content_block_stop", kinds
                index += 1
            else:
                assert kind != "content_block_stop", kinds
            kind = event["type"]
            assert event["index"] == index, kinds
        assert kind == "content_block_stop" and index + 1 == len(whole["content"]), kinds
        assert events[-2]["delta"]["stop_reason"] == whole["stop_reason"]
        assert events[-2]["usage"].keys() == whole["usage"].keys()
        omitted = more.get("thinking", {}).get("display") == "omitted"
        assert not omitted or all(block.get("thinking", "") == "" for block in whole["content"])
        history = [*ASK, {"role": "assistant", "content": whole["content"]}]
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "done"}
            for block in whole["content"] if block["type"] == "tool_use"
        ]
        history.append({"role": "user", "content": [*results, {"type": "text", "text": "Go on."}]})
        held(claude.MessageTokensCount, post("/v1/messages/count_tokens", {"messages": history, "tools": [tool]}))
        held(claude.Message, post("/v1/messages", {"messages": history, "max_tokens": 8, "tools": [tool]}))


def models():
    for model in get("/v1/models")["data"]:
        held(Model, model)
        held(Model, get(f"/v1/models/{model['id']}"))
        held(claude.ModelInfo, get(f"/v1/models/{model['id']}", VERSION))
    listed = get("/v1/models", VERSION)
    assert {"data", "first_id", "last_id", "has_more"} <= listed.keys()
    for model in listed["data"]:
        held(claude.ModelInfo, model)


def errors():
    refused = [
        (400, "/v1/chat/completions", {"messages": 1}),
        (400, "/v1/responses", {"input": 1}),
        (400, "/v1/messages", {"max_tokens": 1, "messages": []}),
        (404, "/v1/messages/batches", {}),
        (405, "/v1/messages", None),
        (404, "/v1/nothing", {}),
        (404, "/v1/responses/resp_x", None),
    ]
    for status, path, body in refused:
        answer = ask("GET" if body is None else "POST", path, body)
        error = json.loads(answer.read())
        assert answer.status == status, error
        if path.startswith("/v1/messages"):
            held(BetaErrorResponse, error)
            assert error["request_id"] == answer.headers["request-id"]
        else:
            assert error["error"].keys() >= {"message", "type", "param", "code"}, error


for check in (chats, texts, responses, messages, models, errors):
    check()
    print(f"ok {check.__name__}")
