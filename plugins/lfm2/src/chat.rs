//! How the family marks the parts of its turns, and how it cuts text.

use bantam_plugin_sdk::family::{CallSyntax, ChatFormat, PreTokenizer, Reasoning, TokenizerHints};

/// Calls are a list as Python writes it. Thinking models open their reasoning themselves.
pub(crate) fn format() -> ChatFormat {
    let [open, close] = ["<|tool_call_start|>", "<|tool_call_end|>"].map(Into::into);
    ChatFormat {
        stop_tokens: ["<|im_end|>", "<|endoftext|>"].map(Into::into).into(),
        reasoning: vec![Reasoning { open: "<think>".into(), close: "</think>".into(), ended_by_calls: true }],
        calls: vec![CallSyntax::Python { open, close }],
        ..ChatFormat::default()
    }
}

/// Llama 3's pattern, for files that do not name it.
pub(crate) fn tokenizer() -> TokenizerHints {
    const PATTERN: &str = concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    );
    TokenizerHints {
        pre: Some(PreTokenizer { patterns: vec![PATTERN.into()], nfc: false, whole_pieces: true }),
        add_bos: Some(true),
        ..TokenizerHints::default()
    }
}
