//! What can go wrong between a checkpoint's metadata and ids or a prompt.

/// Why a tokenizer could not be built or a text not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The algorithm named in the checkpoint is not one of ours.
    #[error("`tokenizer.ggml.model` is \"{model}\", which is not supported; known: {known}")]
    UnknownModel {
        /// The name in the file.
        model: String,
        /// The names that would be taken, separated by commas.
        known: String,
    },
    /// The way of cutting text named in the checkpoint is not one of ours. Guessing would load and answer, only worse.
    #[error("`tokenizer.ggml.pre` is \"{pre}\", which is not supported; known: {known}")]
    UnknownPre {
        /// The name in the file.
        pre: String,
        /// The names that would be taken, separated by commas.
        known: String,
    },
    /// A metadata key that this kind of tokenizer needs is absent.
    #[error("`{key}` is missing; a \"{model}\" tokenizer needs it")]
    Missing {
        /// The full metadata key.
        key: String,
        /// The tokenizer's algorithm.
        model: String,
    },
    /// A control or user-defined token is longer than any that is looked for in texts.
    #[error("the special token {id} has {bytes} bytes, expected at most {most}")]
    LongSpecial {
        /// The token.
        id: u32,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// An array does not go with the vocabulary.
    #[error("`{key}` has {found} entries, expected at least {expected}, the number of tokens")]
    Length {
        /// The full metadata key.
        key: &'static str,
        /// How many tokens there are.
        expected: usize,
        /// How many entries the array has.
        found: usize,
    },
    /// A metadata value has the wrong type or an impossible value.
    #[error("`{key}`: {reason}")]
    Value {
        /// The full metadata key, or the name of the file.
        key: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// A text beyond what positions can count.
    #[error("the text has {bytes} bytes, more than the {most} that can be tokenized at once")]
    TooLong {
        /// The text's length.
        bytes: usize,
        /// The longest that is taken.
        most: usize,
    },
    /// The metadata lack a key or hold a value of another type.
    #[error(transparent)]
    Metadata(#[from] bantam_gguf::GgufError),
    /// The `tokenizers` library refused a tokenizer.json or a text.
    #[error("{what}: {reason}")]
    Library {
        /// What was being done.
        what: &'static str,
        /// The library's words.
        reason: String,
    },
}
