//! Text in and out of a model: tokenizers built from a checkpoint's metadata, chat templates rendered as Hugging Face
//! renders them, and the way back: whole characters, stop texts, and a turn taken apart into reasoning, answer and calls.

mod error;
mod output;
mod stop;
mod template;
mod tokenizer;

pub use error::TokenizerError;
/// A date and time of day without a zone, for `strftime_now`.
pub use jiff::civil::DateTime;
pub use output::{Call, OutputFormat, Part, Piece, Splitter, Tool, Turn};
pub use stop::{StopMatcher, StopOutput};
pub use template::{
    Capabilities, ChatTemplate, EFFORT_LEVELS, EffortSetting, PastTurns, RESERVED_VARIABLES, RenderInput,
    TemplateError, ThinkingSwitch, local_now, prepare_messages, prepare_tools, write_out_tools,
};
pub use tokenizer::{Joined, Segment, Specials, StreamDecoder, TokenType, Tokenizer, TokenizerSpec};
