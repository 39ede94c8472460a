"""Anthropic's own SDK against a running server: python anthropic_sdk.py http://127.0.0.1:8000 [API_KEY]

Needs `pip install anthropic`. What the model says does not matter, only how it is told.
"""

import sys

import anthropic

BASE = sys.argv[1].rstrip("/")
KEY = sys.argv[2] if len(sys.argv) > 2 else "none"
client = anthropic.Anthropic(base_url=BASE, api_key=KEY, max_retries=0, timeout=300)
MODEL = client.models.list().data[0].id
ASK = [{"role": "user", "content": "Say hello to the crew in one short sentence."}]
LS = {
    "name": "ls",
    "description": "Lists a directory.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
HISTORY = [
    {"role": "user", "content": [{"type": "text", "text": "What is here?", "cache_control": {"type": "ephemeral"}}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "I should look.", "signature": "c2lnbmF0dXJl"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "."}},
            {"type": "tool_use", "id": "toolu_2", "name": "ls", "input": {"path": "src"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"},
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "is_error": True,
                "content": [{"type": "text", "text": "no such directory"}],
            },
            {"type": "text", "text": "So?"},
        ],
    },
]


# Not all versions of the SDK have arguments for how tokens are chosen.
GREEDY = {"temperature": 0}


def create(sampling=GREEDY, **fields):
    asked = {"model": MODEL, "max_tokens": 24, "messages": ASK, "extra_body": sampling}
    return client.messages.create(**asked | fields)


def takes_tools():
    """Models whose template knows no tools refuse them by name."""
    try:
        create(max_tokens=1, tools=[LS])
    except anthropic.BadRequestError as refused:
        assert "`tools`" in refused.message, refused
        return False
    return True


def text(message):
    return "".join(block.text for block in message.content if block.type == "text")


def whole_and_streamed():
    whole = create()
    assert whole.type == "message" and whole.role == "assistant" and whole.model == MODEL
    assert whole.id.startswith("msg_") and whole._request_id.startswith("req_")
    assert whole.stop_reason in ("end_turn", "max_tokens") and text(whole)
    assert 0 < whole.usage.output_tokens <= 24

    names = []
    with client.messages.stream(model=MODEL, max_tokens=24, messages=ASK, extra_body=GREEDY) as stream:
        for event in stream:
            names.append(event.type)
        final = stream.get_final_message()
    assert names[0] == "message_start" and names[-1] == "message_stop", names
    assert text(final) == text(whole) and final.stop_reason == whole.stop_reason
    total = lambda usage: usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    assert total(final.usage) == total(whole.usage)
    assert final.usage.output_tokens == whole.usage.output_tokens

    raw = [event.type for event in create(stream=True)]
    assert raw[:2] == ["message_start", "content_block_start"], raw
    assert raw[-3:] == ["content_block_stop", "message_delta", "message_stop"], raw


def progress():
    """Of a long prompt, which the SDK passes over or tells, and in no case stumbles on."""
    long = [{"role": "user", "content": "hello " * 1200}]
    sampling = GREEDY | {"prefill_progress": True}
    with client.messages.stream(model=MODEL, max_tokens=8, messages=long, extra_body=sampling) as stream:
        names = [event.type for event in stream]
        final = stream.get_final_message()
    assert names[0] == "message_start" and names[-1] == "message_stop", names
    assert final.stop_reason in ("end_turn", "max_tokens"), final
    raw = [event.type for event in create(sampling=sampling, messages=long, max_tokens=8, stream=True)]
    assert raw[0] == "message_start" and raw[-1] == "message_stop", raw


def counting():
    counted = client.messages.count_tokens(model=MODEL, messages=ASK, system="Be brief.")
    usage = create(system="Be brief.").usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def options():
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    told = create(
        sampling={"temperature": 0.5, "top_p": 0.9, "top_k": 40}, system=system, metadata={"user_id": "u"}, stop_sequences=["never to be found"],
        thinking={"type": "enabled", "budget_tokens": 1024}, output_config={"effort": "low"},
    )
    assert told.stop_reason in ("end_turn", "max_tokens")
    stop = text(create())[3:6]
    told = create(stop_sequences=[stop])
    assert (told.stop_reason, told.stop_sequence) == ("stop_sequence", stop) and stop not in text(told)


def conversation():
    turns = list(ASK)
    for _ in range(2):
        told = create(messages=turns)
        turns += [{"role": "assistant", "content": told.content}, {"role": "user", "content": "Go on."}]
    assert create(messages=turns).usage.cache_read_input_tokens > 0
    assert create(messages=HISTORY).stop_reason
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "A text."}}
    seen = [{"role": "user", "content": [image, document, {"type": "text", "text": "What is it?"}]}]
    assert create(messages=seen).stop_reason


def tools():
    told = create(messages=HISTORY, tools=[LS, {"type": "web_search_20250305", "name": "web_search"}])
    assert told.stop_reason
    assert create(tools=[LS], tool_choice={"type": "none"}).stop_reason
    with client.messages.stream(
        model=MODEL, max_tokens=200, messages=ASK, tools=[LS], extra_body=GREEDY,
        tool_choice={"type": "tool", "name": "ls", "disable_parallel_tool_use": True},
    ) as stream:
        called = [block for block in stream.get_final_message().content if block.type == "tool_use"]
    for block in called:
        assert block.name == "ls" and block.id.startswith("toolu_") and isinstance(block.input, dict)


def refusals():
    def refused(kind, words, ask):
        try:
            ask()
        except kind as error:
            assert words in error.message, error.message
            assert error.body["type"] == "error" and error.request_id == error.body["request_id"]
            return error
        raise AssertionError(f"{words}: not refused")

    refused(anthropic.BadRequestError, "`messages[0].role`", lambda: create(messages=[{"role": "x", "content": "y"}]))
    refused(anthropic.BadRequestError, "`temperature`", lambda: create(sampling={"temperature": -1}))
    refused(anthropic.BadRequestError, "`max_tokens`", lambda: create(max_tokens=0))
    refused(anthropic.NotFoundError, "no-such-model", lambda: client.models.retrieve("no-such-model"))
    window = client.models.retrieve(MODEL).max_input_tokens
    long = [{"role": "user", "content": "word " * (2 * window)}]
    refused(anthropic.BadRequestError, "prompt is too long: ", lambda: create(messages=long))


def leaving():
    with client.messages.stream(model=MODEL, max_tokens=1000, messages=ASK) as stream:
        for event in stream:
            if event.type == "content_block_delta":
                break
    assert create().stop_reason


def main():
    listed = client.models.list().data[0]
    assert (listed.type, client.models.retrieve(MODEL).id) == ("model", MODEL) and listed.created_at
    checks = [whole_and_streamed, progress, counting, options, conversation, refusals, leaving]
    if takes_tools():
        checks.append(tools)
    for check in checks:
        check()
        print("ok", check.__name__)


main()
