"""OpenAI's own SDK and the Responses of a running server: python responses_sdk.py http://127.0.0.1:8000 [API_KEY]

Needs `pip install openai`. What the model says does not matter, only how it is told.
"""

import sys
import time

import openai

BASE = sys.argv[1].rstrip("/")
KEY = sys.argv[2] if len(sys.argv) > 2 else "none"
client = openai.OpenAI(base_url=f"{BASE}/v1", api_key=KEY, max_retries=0, timeout=300)
MODEL = client.models.list().data[0].id
ASK = "Say hello to the crew in one short sentence."
LS = {
    "type": "function",
    "name": "ls",
    "description": "Lists a directory.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    "strict": False,
}
HISTORY = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "input_text", "text": "What is here?"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I should look."}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
    {"type": "function_call", "call_id": "call_1", "name": "ls", "arguments": '{"path": "."}'},
    {"type": "function_call_output", "call_id": "call_1", "output": "a.txt"},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin Patch"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"},
    {"role": "user", "content": "So?"},
]


def create(**fields):
    return client.responses.create(
        **{"model": MODEL, "input": ASK, "max_output_tokens": 24, "temperature": 0} | fields
    )


def takes_tools():
    """Models whose template knows no tools refuse them by name."""
    try:
        create(max_output_tokens=16, tools=[LS])
    except openai.BadRequestError as refused:
        assert refused.param == "tools", refused
        return False
    return True


def whole_and_streamed():
    whole = create(instructions="Be brief.", metadata={"a": "b"})
    assert whole.object == "response" and whole.id.startswith("resp_") and whole.model == MODEL
    assert whole.status in ("completed", "incomplete") and whole.output_text
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    assert whole.usage.input_tokens_details.cached_tokens >= 0
    assert whole.usage.output_tokens_details.reasoning_tokens >= 0
    assert whole.instructions == "Be brief." and whole.metadata == {"a": "b"}
    assert whole.output[-1].type == "message" and whole.output[-1].content[0].type == "output_text"

    raw = list(create(instructions="Be brief.", stream=True))
    assert [event.sequence_number for event in raw] == list(range(len(raw)))
    names = [event.type for event in raw]
    assert names[:4] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    ], names
    assert names[-4:-1] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
    ], names
    final = raw[-1].response
    assert raw[-1].type == f"response.{final.status}" and final.output_text == whole.output_text
    assert "".join(event.delta for event in raw if event.type == "response.output_text.delta") == whole.output_text

    with client.responses.stream(model=MODEL, input=ASK, max_output_tokens=1000, temperature=0) as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(texts) == final.output_text and final.status == "completed"


def progress():
    """Of a long prompt, which the SDK tells or passes over, and in no case stumbles on."""
    asked = {"input": "hello " * 1200, "max_output_tokens": 16, "extra_body": {"prefill_progress": True}}
    raw = list(create(stream=True, **asked))
    assert [event.sequence_number for event in raw] == list(range(len(raw)))
    assert raw[-1].type == f"response.{raw[-1].response.status}", raw[-1]
    with client.responses.stream(model=MODEL, **asked) as stream:
        names = [event.type for event in stream]
    assert names[0] == "response.created" and names[-1] in ("response.completed", "response.incomplete"), names


def options():
    told = create(
        top_p=0.9, include=["message.output_text.logprobs", "reasoning.encrypted_content"], top_logprobs=2,
        reasoning={"effort": "low", "summary": "auto"}, text={"verbosity": "low"}, truncation="auto", user="u",
    )
    probabilities = told.output[-1].content[0].logprobs
    assert probabilities and all(len(token.top_logprobs) == 2 for token in probabilities)
    assert told.reasoning.effort == "low" and told.truncation == "auto"
    cut = create(max_output_tokens=2)
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens"


def kept():
    first = create()
    again = client.responses.retrieve(first.id)
    assert again.output_text == first.output_text and again.created_at == first.created_at
    second = create(input="Go on.", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert second.usage.input_tokens > first.usage.input_tokens
    referred = create(
        input=[{"role": "user", "content": ASK}, {"type": "item_reference", "id": first.output[-1].id},
               {"role": "user", "content": "Go on."}],
    )
    assert referred.output_text == second.output_text
    listed = client.responses.input_items.list(first.id, order="asc", limit=1)
    assert [item.role for item in listed] == ["user"]
    client.responses.delete(first.id)
    for gone in (lambda: client.responses.retrieve(first.id), lambda: client.responses.input_items.list(first.id)):
        try:
            gone()
        except openai.NotFoundError:
            continue
        raise AssertionError("it is deleted")
    unkept = create(store=False)
    try:
        create(previous_response_id=unkept.id)
    except openai.BadRequestError as refused:
        assert refused.code == "previous_response_not_found"
    else:
        raise AssertionError("it was not to be kept")


def background():
    begun = create(background=True)
    assert begun.status in ("queued", "in_progress")
    while (told := client.responses.retrieve(begun.id)).status in ("queued", "in_progress"):
        time.sleep(0.1)
    assert told.status in ("completed", "incomplete") and told.output_text
    begun = create(background=True, max_output_tokens=2000, input="Count from one to a thousand in words.")
    assert client.responses.cancel(begun.id).status == "cancelled"
    assert client.responses.retrieve(begun.id).status == "cancelled"
    assert client.responses.cancel(begun.id).status == "cancelled"


def cancelled_stream():
    stream = create(stream=True, max_output_tokens=2000, input="Count from one to a thousand in words.")
    cancelled = None
    for event in stream:
        if event.type == "response.created":
            id = event.response.id
        if event.type == "response.output_text.delta" and not cancelled:
            try:
                cancelled = client.responses.cancel(id).status
            except openai.BadRequestError as ended:
                cancelled = ended.message.split()[-1].strip("'}")
    assert cancelled == event.response.status, (cancelled, event)


def conversation():
    assert create(input=HISTORY).output
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    seen = [{"role": "user", "content": [image, {"type": "input_text", "text": "What is it?"}]}]
    assert create(input=seen).output
    counted = client.responses.input_tokens.count(model=MODEL, input=HISTORY)
    assert counted.input_tokens == create(input=HISTORY).usage.input_tokens


def tools():
    patch = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "text"}}
    told = create(input=HISTORY, tools=[LS, patch, {"type": "web_search"}])
    assert told.tools[0].name == "ls" and told.tool_choice == "auto"
    assert create(tools=[LS], tool_choice="none").output
    stream = create(
        tools=[LS], tool_choice={"type": "function", "name": "ls"}, parallel_tool_calls=False, stream=True,
        max_output_tokens=200,
    )
    events = list(stream)
    for item in events[-1].response.output:
        if item.type == "function_call":
            assert item.name == "ls" and item.call_id.startswith("call_")
            pieces = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
            assert "".join(pieces) == item.arguments


def refusals():
    def refused(param, **fields):
        try:
            create(**fields)
        except openai.BadRequestError as error:
            assert error.param == param and param in error.message, error
            return error
        raise AssertionError(f"{param}: not refused")

    refused("temperature", temperature=-1)
    refused("input[0].role", input=[{"role": "robot", "content": "x"}])
    refused("max_output_tokens", max_output_tokens=0)
    refused("tools[0].name", tools=[{"type": "function"}])
    refused("conversation", conversation="conv_1")
    try:
        create(input="word " * 2_000_000)
    except openai.BadRequestError as error:
        assert (error.code, error.param) == ("context_length_exceeded", "input"), error
    else:
        raise AssertionError("no window is that long")


def main():
    checks = [whole_and_streamed, progress, options, kept, background, cancelled_stream, conversation, refusals]
    if takes_tools():
        checks.append(tools)
    for check in checks:
        check()
        print("ok", check.__name__)


main()
