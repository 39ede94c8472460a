//! The families' chat formats, as data. What several of them share has a name of its own.

use bantam_family_api::{
    ArgumentTags, CallSyntax, ChatFormat, Effort, JsonCalls, MessageHeader, Reasoning, TaggedCalls,
};
use serde_json::Value;

/// Llama and its kin. A call is a JSON object that is the whole turn, or stands behind a token.
pub(crate) fn llama() -> ChatFormat {
    let arguments = ["parameters", "arguments"];
    ChatFormat {
        calls: vec![json_calls(["", ""], &arguments), json_calls(["<|python_tag|>", ""], &arguments)],
        ..stopping(&["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "<|endoftext|>"])
    }
}

/// Qwen2.5 and Qwen3; Qwen3-Coder calls by tags. The last three tokens end an answer to a fill-in-the-middle prompt.
pub(crate) fn qwen() -> ChatFormat {
    ChatFormat {
        reasoning: vec![think()],
        calls: vec![json_calls(["<tool_call>\n", "\n</tool_call>"], &["arguments"]), function_tags()],
        ..stopping(&["<|im_end|>", "<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"])
    }
}

/// Qwen 3.5 and later. Efforts came with 3.8.
pub(crate) fn qwen35() -> ChatFormat {
    let efforts = efforts("reasoning_effort", &["low", "medium", "xhigh"]);
    ChatFormat { efforts, calls: vec![function_tags()], ..qwen() }
}

/// Gemma 3, which neither reasons nor calls.
pub(crate) fn gemma() -> ChatFormat {
    stopping(&["<end_of_turn>", "<eos>"])
}

/// Gemma 4. The last stop token is what the model writes after its calls, to wait for their results.
pub(crate) fn gemma4() -> ChatFormat {
    let [open, close, quote] = ["<|tool_call>call:", "<tool_call|>", "<|\"|>"].map(Into::into);
    ChatFormat {
        hidden: owned(&["<|channel>", "<channel|>"]),
        reasoning: vec![reasoning("<|channel>thought\n", "<channel|>")],
        calls: vec![CallSyntax::Braced { open, close, quote }],
        ..stopping(&["<turn|>", "<eos>", "<|tool_response>"])
    }
}

/// Laguna. The end of a turn is sometimes spelled with several tokens.
pub(crate) fn laguna() -> ChatFormat {
    ChatFormat {
        stop_texts: owned(&["</assistant>"]),
        reasoning: vec![think()],
        calls: vec![CallSyntax::Tagged(key_value_tags(""))],
        ..stopping(&["</assistant>", "〈|EOS|〉"])
    }
}

/// Ling 3. The end of a turn is sometimes spelled with several tokens.
pub(crate) fn bailing() -> ChatFormat {
    ChatFormat {
        stop_texts: owned(&["<|role_end|>"]),
        reasoning: vec![think()],
        calls: vec![CallSyntax::Tagged(key_value_tags(""))],
        ..stopping(&["<|role_end|>", "<|endoftext|>"])
    }
}

/// K2-Horizon: each effort has marks of its own, and all calls of a turn stand in one block.
pub(crate) fn k2_horizon() -> ChatFormat {
    let marks = |name: &&str| reasoning(&format!("<ifm|{name}>\n"), &format!("</ifm|{name}>"));
    let block = Some(["<ifm|tool_calls>", "</ifm|tool_calls>"].map(Into::into));
    let tags = key_value_tags("ifm|");
    let kind = Some(["<ifm|arg_type>", "</ifm|arg_type>"].map(Into::into));
    let argument = ArgumentTags { kind, ..tags.argument };
    let json =
        JsonCalls { block: block.clone(), ..json_object(["<ifm|tool_call>", "</ifm|tool_call>"], &["arguments"]) };
    ChatFormat {
        reasoning: ["think", "think_fast", "think_faster"].iter().map(marks).collect(),
        efforts: efforts("reasoning_effort", &["low", "medium", "high"]),
        calls: vec![CallSyntax::Tagged(TaggedCalls { block, argument, ..tags }), CallSyntax::Json(json)],
        ..stopping(&["<|ifm|im_end|>", "<|ifm|endoftext|>"])
    }
}

/// Muse Glimmer. A turn is several messages, whose headers say to whom they go: the model itself, the user, a tool.
pub(crate) fn muse_glimmer() -> ChatFormat {
    let block = Some(["<atem:function_calls>\n", "</atem:function_calls>"].map(Into::into));
    ChatFormat {
        hidden: owned(&["<|eom|>", "<|start|>assistant", "<|message|>"]),
        header: Some(MessageHeader { before: " to=".into(), behind: "<|message|>".into(), answer: "user".into() }),
        reasoning: vec![Reasoning { ended_by_calls: false, ..reasoning(" to=self<|message|>", "<|eom|>") }],
        efforts: efforts("reasoning_strength", &["low", "medium", "high", "xhigh"]),
        calls: vec![CallSyntax::Tagged(TaggedCalls {
            block,
            open: "<atem:invoke name=\"".into(),
            named: "\">\n".into(),
            close: "</atem:invoke>\n".into(),
            argument: argument("<atem:parameter name=\"", "\">", None, "</atem:parameter>\n"),
        })],
        ..stopping(&["<|eot|>", "<|end_of_text|>"])
    }
}

/// Nemotron 3. The larger models take an effort, each size by a switch of its own.
pub(crate) fn nemotron() -> ChatFormat {
    let switch = |level: &str| effort(level, &format!("{level}_effort"), true.into());
    ChatFormat {
        reasoning: vec![think()],
        efforts: ["low", "medium"].map(switch).into(),
        calls: vec![function_tags()],
        ..stopping(&["<|im_end|>", "</s>"])
    }
}

/// DeepSeek-V4. An argument says whether it is text or JSON. V3.2 calls the block by another name.
pub(crate) fn deepseek() -> ChatFormat {
    ChatFormat {
        reasoning: vec![think()],
        efforts: efforts("reasoning_effort", &["high", "max"]),
        calls: ["tool_calls", "function_calls"].map(invoke_tags).into(),
        ..stopping(&["<｜end▁of▁sentence｜>"])
    }
}

fn stopping(tokens: &[&str]) -> ChatFormat {
    ChatFormat { stop_tokens: owned(tokens), ..ChatFormat::default() }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.into()).collect()
}

fn reasoning(open: &str, close: &str) -> Reasoning {
    Reasoning { open: open.into(), close: close.into(), ended_by_calls: true }
}

fn think() -> Reasoning {
    reasoning("<think>", "</think>")
}

fn effort(level: &str, variable: &str, value: Value) -> Effort {
    Effort { level: level.into(), variable: variable.into(), value }
}

/// Levels that the template knows by their own names.
fn efforts(variable: &str, levels: &[&str]) -> Vec<Effort> {
    levels.iter().map(|&level| effort(level, variable, level.into())).collect()
}

fn json_calls(marks: [&str; 2], arguments: &[&str]) -> CallSyntax {
    CallSyntax::Json(json_object(marks, arguments))
}

fn json_object([open, close]: [&str; 2], arguments: &[&str]) -> JsonCalls {
    let [open, close, name] = [open, close, "name"].map(Into::into);
    JsonCalls { block: None, open, close, name, arguments: owned(arguments) }
}

fn argument(open: &str, text: &str, json: Option<&str>, close: &str) -> ArgumentTags {
    let [open, text, close] = [open, text, close].map(Into::into);
    ArgumentTags { open, text, json: json.map(Into::into), kind: None, close, text_by_default: false }
}

/// `<｜DSML｜invoke name="NAME">` and `<｜DSML｜parameter name="KEY" string="true">`, in a block of this name.
fn invoke_tags(block: &str) -> CallSyntax {
    let block = Some([format!("\n\n<｜DSML｜{block}>\n"), format!("</｜DSML｜{block}>")]);
    let [text, json] = ["\" string=\"true\">", "\" string=\"false\">"];
    CallSyntax::Tagged(TaggedCalls {
        block,
        open: "<｜DSML｜invoke name=\"".into(),
        named: "\">\n".into(),
        close: "</｜DSML｜invoke>\n".into(),
        argument: argument("<｜DSML｜parameter name=\"", text, Some(json), "</｜DSML｜parameter>\n"),
    })
}

/// `<function=NAME>` and `<parameter=KEY>`, each on a line of its own, as are values.
fn function_tags() -> CallSyntax {
    let argument = argument("<parameter=", ">\n", None, "\n</parameter>\n");
    CallSyntax::Tagged(TaggedCalls {
        block: None,
        open: "<tool_call>\n<function=".into(),
        named: ">\n".into(),
        close: "</function>\n</tool_call>".into(),
        argument: ArgumentTags { text_by_default: true, ..argument },
    })
}

/// The name bare, then a pair of tags for each argument.
fn key_value_tags(prefix: &str) -> TaggedCalls {
    let tag = |name: &str| format!("{prefix}{name}");
    let (call, key, value) = (tag("tool_call"), tag("arg_key"), tag("arg_value"));
    let between = format!("</{key}><{value}>");
    TaggedCalls {
        block: None,
        open: format!("<{call}>"),
        named: String::new(),
        close: format!("</{call}>"),
        argument: argument(&format!("<{key}>"), &between, None, &format!("</{value}>")),
    }
}
