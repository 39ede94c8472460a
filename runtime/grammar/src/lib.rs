//! What a model may say: which tools it may call and with what arguments, and what form its answer must have.

mod ask;
mod cache;
mod calls;
mod compile;
mod crossing;
mod error;
mod gbnf;
mod guide;
mod lark;
mod plan;
mod program;
mod response;
mod rules;
mod schema;
mod vocabulary;
mod watch;

pub use ask::{ResponseFormat, ToolChoice};
pub use bantam_text::Tool;
pub use error::{GrammarError, GuideError, VocabularyError};
pub use guide::Guide;
pub use plan::Grammar;
pub use rules::Rules;
pub use schema::relaxed;
pub use vocabulary::Vocabulary;
