//! Why a grammar could not be made, or a token not be taken.

use std::fmt;

/// What in a request cannot be held to: nothing is ever left out of it silently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct GrammarError {
    /// The field of the request, as `tools[2].function.parameters`.
    pub field: String,
    /// The tool's name, where the field belongs to one.
    pub tool: Option<String>,
    /// Where in the field's schema, as `#/properties/when`. None: all of it, or no schema.
    pub path: Option<String>,
    /// The schema's keyword at that place.
    pub keyword: Option<String>,
    /// What is wrong with it and what to do.
    pub reason: String,
}

impl fmt::Display for GrammarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.field)?;
        if let Some(tool) = &self.tool {
            write!(f, " (tool {tool:?})")?;
        }
        if let Some(path) = &self.path {
            write!(f, " at {path}")?;
        }
        if let Some(keyword) = &self.keyword {
            write!(f, ": `{keyword}`")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl GrammarError {
    pub(crate) fn new(field: &str, reason: impl Into<String>) -> Self {
        let (field, reason) = (field.into(), reason.into());
        Self { field, tool: None, path: None, keyword: None, reason }
    }

    pub(crate) fn of_tool(self, name: &str) -> Self {
        Self { tool: Some(name.into()), ..self }
    }
}

/// Why the vocabulary of a model is of no use to grammars.
#[derive(Debug, thiserror::Error)]
pub enum VocabularyError {
    /// A token that is to end answers is none of the vocabulary's, or there is no such token.
    #[error("no token of {ends:?} that ends an answer is one of the {size} in the vocabulary; grammars need one")]
    NoEnd {
        /// The tokens given.
        ends: Vec<u32>,
        /// How many tokens there are.
        size: usize,
    },
    /// There are more tokens than a trie of them holds.
    #[error("the vocabulary has {size} tokens, expected at most {most}")]
    TooLarge {
        /// How many tokens there are.
        size: usize,
        /// How many there may be.
        most: usize,
    },
    /// The trie could not be built.
    #[error("the vocabulary cannot be arranged for grammars: {0}")]
    Trie(String),
}

/// Why a guide cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuideError {
    /// A token was given that the last mask did not allow.
    #[error("token {token} is not allowed here")]
    NotAllowed {
        /// The token.
        token: u32,
    },
    /// More tokens were to be taken back than are remembered.
    #[error("{tokens} tokens cannot be taken back, only the last {kept}")]
    TooFar {
        /// How many were to be.
        tokens: usize,
        /// How many can be.
        kept: usize,
    },
    /// The grammar needs more memory or work at this place than it may have.
    #[error("the grammar became too costly: {0}")]
    TooCostly(String),
}
