//! `GET /openapi.json`: the routes, what they take and what they answer with, for tools that read such descriptions.
//!
//! Requests are described as far as they are checked: known fields with their types. Fields that are not named are passed
//! over, so no object is closed.

use axum::Json;
use serde_json::{Map, Value, json};

/// A route and what it is for.
struct Route {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    /// Name of the schema of its body.
    body: Option<&'static str>,
    /// Name of the schema of its answer; none: any object.
    answer: Option<&'static str>,
    /// Whether it may answer with server-sent events.
    streams: bool,
}

const fn get(path: &'static str, summary: &'static str) -> Route {
    Route { method: "get", path, summary, body: None, answer: None, streams: false }
}

const fn post(path: &'static str, summary: &'static str, body: &'static str) -> Route {
    Route { method: "post", path, summary, body: Some(body), answer: None, streams: false }
}

impl Route {
    const fn answering(self, answer: &'static str) -> Self {
        Route { answer: Some(answer), ..self }
    }

    const fn streaming(self) -> Self {
        Route { streams: true, ..self }
    }
}

/// Every route of the API.
const ROUTES: [Route; 30] = [
    post("/v1/chat/completions", "Answer a conversation (OpenAI)", "Chat").answering("ChatAnswer").streaming(),
    post("/v1/chat/completions/{id}/stop_thinking", "End the thinking of an answer under way", "Nothing"),
    post("/v1/completions", "Continue a text (OpenAI)", "Completion").answering("CompletionAnswer").streaming(),
    post("/v1/responses", "Answer a conversation (OpenAI Responses)", "Response").streaming(),
    get("/v1/responses/{id}", "A stored response").streaming(),
    Route { method: "delete", ..get("/v1/responses/{id}", "Forget a stored response") },
    get("/v1/responses/{id}/input_items", "What a stored response answers"),
    post("/v1/responses/{id}/cancel", "Break a response off", "Nothing"),
    post("/v1/responses/{id}/stop_thinking", "End the thinking of a response under way", "Nothing"),
    post("/v1/responses/input_tokens", "Count the tokens of a request", "Response"),
    post("/v1/messages", "Answer a conversation (Anthropic)", "Messages").streaming(),
    post("/v1/messages/count_tokens", "Count the tokens of a conversation (Anthropic)", "Messages"),
    post("/v1/messages/{id}/stop_thinking", "End the thinking of a message under way", "Nothing"),
    get("/v1/models", "The models"),
    get("/v1/models/{id}", "A model"),
    get("/v1/me", "Who asks"),
    get("/health", "Whether the server works, and how busy it is"),
    get("/ready", "Whether a request that comes now is taken"),
    get("/props", "What the server is and does by default"),
    get("/slots", "What each slot does"),
    get("/queue", "Who waits"),
    get("/metrics", "Figures for Prometheus"),
    get("/actors", "The actors that do the work, and how they fare"),
    get("/memory", "Who holds how much memory"),
    get("/graph", "What the model computes"),
    get("/experts", "What the experts of a mixture have computed"),
    post("/tokenize", "The tokens of a text", "Tokenize"),
    post("/detokenize", "The text of tokens", "Detokenize"),
    post("/apply-template", "The prompt that a conversation becomes", "Template"),
    get("/openapi.json", "This description"),
];

pub(crate) async fn openapi() -> Json<Value> {
    Json(document())
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Bantam", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"key": []}],
    })
}

fn operation(route: &Route) -> Value {
    let named = |name: Option<&str>| match name {
        Some(name) => json!({"$ref": format!("#/components/schemas/{name}")}),
        None => json!({}),
    };
    let mut content = json!({"application/json": {"schema": named(route.answer)}});
    if route.streams {
        // Events have their data in JSON, each protocol in its own form.
        content["text/event-stream"] = json!({});
    }
    if route.method == "get" && !route.path.starts_with("/v1") {
        content["text/plain"] = json!({});
        content["application/openmetrics-text"] = json!({});
    }
    let refused =
        json!({"description": "refused or failed", "content": {"application/json": {"schema": named(Some("Error"))}}});
    let mut operation = json!({
        "summary": route.summary,
        "responses": {"200": {"description": "done", "content": content}, "4XX": refused, "5XX": refused},
    });
    if let Some(body) = route.body {
        let schema = named(Some(body));
        operation["requestBody"] =
            json!({"required": body != "Nothing", "content": {"application/json": {"schema": schema}}});
    }
    let mut parameters = options(route);
    if route.path.contains("{id}") {
        parameters.push(json!({"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}));
    }
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    operation
}

/// What a route reads of the query.
fn options(route: &Route) -> Vec<Value> {
    let option = |name: &str, schema: Value| json!({"name": name, "in": "query", "schema": schema});
    match (route.method, route.path) {
        ("get", "/v1/responses/{id}") => vec![
            option("stream", json!({"type": "boolean"})),
            option("starting_after", json!({"type": "integer", "minimum": 0})),
        ],
        ("get", "/v1/responses/{id}/input_items") => vec![
            option("order", json!({"enum": ["asc", "desc"]})),
            option("limit", json!({"type": "integer", "minimum": 1, "maximum": 100})),
            option("after", json!({"type": "string"})),
        ],
        _ => Vec::new(),
    }
}

fn schemas() -> Value {
    let part = json!({"type": "object", "required": ["type", "text"], "properties": {"type": {"const": "text"}, "text": {"type": "string"}}});
    let message = json!({
        "type": "object", "required": ["role", "content"],
        "properties": {
            "role": {"enum": ["system", "user", "assistant"]},
            "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": part}]},
            "reasoning_content": {"type": ["string", "null"]},
            "tool_calls": {"type": ["array", "null"], "items": {"type": "object"}},
            "tool_call_id": {"type": ["string", "null"]},
        },
    });
    let messages = json!({"type": "array", "minItems": 1, "items": message});
    let tools = json!({"type": "array", "items": {"type": "object"}});
    let chat = json!({
        "messages": messages, "tools": tools, "tool_choice": {"type": ["string", "object"]},
        "parallel_tool_calls": {"type": "boolean"}, "reasoning_effort": {"type": "string"},
        "reasoning_budget_tokens": {"type": "integer", "minimum": 0}, "chat_template_kwargs": {"type": "object"},
        "logprobs": {"type": "boolean"}, "top_logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
    });
    let completion = json!({
        "prompt": {"type": ["string", "array"]}, "echo": {"type": "boolean"},
        "logprobs": {"type": "integer", "minimum": 0, "maximum": 20},
    });
    let messages_request = json!({
        "messages": messages, "max_tokens": {"type": "integer", "minimum": 1}, "system": {"type": ["string", "array"]},
        "tools": tools, "tool_choice": {"type": "object"}, "thinking": {"type": "object"}, "stream": {"type": "boolean"},
        "temperature": {"type": "number", "minimum": 0}, "top_p": {"type": "number", "minimum": 0, "maximum": 1},
        "top_k": {"type": "integer"}, "stop_sequences": {"type": "array", "items": {"type": "string"}},
        "prefill_progress": {"type": "boolean"},
    });
    let response = json!({
        "input": {"type": ["string", "array"]}, "instructions": {"type": ["string", "null"]}, "tools": tools,
        "max_output_tokens": {"type": ["integer", "null"], "minimum": 1}, "previous_response_id": {"type": ["string", "null"]},
        "store": {"type": ["boolean", "null"]}, "stream": {"type": ["boolean", "null"]}, "reasoning": {"type": ["object", "null"]},
        "text": {"type": ["object", "null"]}, "temperature": {"type": ["number", "null"]}, "prefill_progress": {"type": "boolean"},
    });
    let object = |required: &[&str], properties: Value| json!({"type": "object", "required": required, "properties": properties});
    json!({
        "Chat": object(&["messages"], joined(chat, sampling())),
        "Template": object(&["messages"], json!({
            "messages": messages, "tools": tools, "chat_template_kwargs": {"type": "object"}, "reasoning_effort": {"type": "string"},
            "with_pieces": {"type": "boolean"},
        })),
        "Completion": object(&["prompt"], joined(completion, sampling())),
        "Messages": object(&["messages", "max_tokens"], messages_request),
        "Response": object(&[], response),
        "Tokenize": object(&["content"], json!({"content": {"type": ["string", "array"]}, "add_special": {"type": "boolean"}, "parse_special": {"type": "boolean"}, "with_pieces": {"type": "boolean"}})),
        "Detokenize": object(&["tokens"], json!({"tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}}})),
        "Nothing": {},
        "ChatAnswer": object(&["id", "object", "created", "model", "choices"], json!({"choices": {"type": "array"}})),
        "CompletionAnswer": object(&["id", "object", "created", "model", "choices"], json!({"choices": {"type": "array"}})),
        "Error": object(&["error"], json!({"error": {"type": "object", "required": ["message", "type"]}})),
    })
}

/// What conversations and texts share.
fn sampling() -> Value {
    json!({
        "model": {"type": "string"}, "stream": {"type": "boolean"}, "stream_options": {"type": "object"},
        "max_tokens": {"type": "integer", "minimum": -1, "not": {"const": 0}},
        "max_completion_tokens": {"type": "integer", "minimum": -1, "not": {"const": 0}},
        "n": {"type": "integer", "minimum": 1, "maximum": 128},
        "temperature": {"type": "number", "minimum": 0}, "top_p": {"type": "number", "minimum": 0, "maximum": 1},
        "top_k": {"type": "integer", "minimum": -1}, "min_p": {"type": "number", "minimum": 0, "maximum": 1},
        "repetition_penalty": {"type": "number", "exclusiveMinimum": 0},
        "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
        "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
        "penalty_window": {"type": "integer", "minimum": 0}, "seed": {"type": "integer"},
        "stop": {"type": ["string", "array"]}, "logit_bias": {"type": ["object", "array"]}, "ignore_eos": {"type": "boolean"},
        "response_format": {"type": "object"}, "grammar": {"type": "string"}, "regex": {"type": "string"},
        "priority": {"type": "integer"}, "deadline_ms": {"type": "integer", "minimum": 1},
        "prefill_progress": {"type": "boolean"},
    })
}

fn joined(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => Value::Object(one.into_iter().chain(other).collect()),
        (one, _) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_that_is_named_is_there() {
        let document = document();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let text = document.to_string();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
    }
}
