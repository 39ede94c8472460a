//! Generated turns, remembered with their tokens.
//!
//! A client sends a turn back as text. Encoded anew, that text may have other tokens than the model drew, and what is
//! cached would end there. So the beginning of a conversation up to the end of a turn is remembered by what is rendered
//! ([`Digest`]) with the tokens that it had, and a prompt that begins so takes these.
//!
//! Rules that keep a prompt's tokens right:
//!
//! - Beginnings are alike if their text is and the same special tokens stand at the same places in it. So whoever types
//!   the text of a control token never finds a turn that ended in one.
//! - A turn is found only where a special token follows: what is behind one is encoded for itself.
//! - Only what the client saw is remembered. A turn that a stop text cut short ends before it; the piece of a token that
//!   was still shown is encoded for itself.
//! - A turn with an end token in it, generated on demand, is not remembered.

mod digest;
mod memory;
mod seed;

pub(crate) use digest::{Digest, Open, digests};
pub(crate) use memory::{Recalled, Turn, TurnMemory};
pub(crate) use seed::TurnSeed;

#[cfg(test)]
pub(crate) mod testing {
    //! A small vocabulary.

    use bantam_text::{TokenType, Tokenizer, TokenizerSpec};

    /// `<s>`, which is a control token, `<t>`, which is user-defined, single characters, `ab` and the space.
    pub(crate) fn tokenizer() -> Tokenizer {
        let tokens = ["<s>", "<t>", "a", "b", "ab", "<", ">", "s", "t", "Ġ"];
        let token_type = |token: &&str| match *token {
            "<s>" => TokenType::Control,
            "<t>" => TokenType::UserDefined,
            _ => TokenType::Normal,
        };
        Tokenizer::new(TokenizerSpec {
            model: "gpt2".into(),
            pre: Some("gpt-2".into()),
            token_types: tokens.iter().map(token_type).collect(),
            tokens: tokens.iter().map(|token| token.as_bytes().to_vec()).collect(),
            merges: vec![b"a b".to_vec()],
            ..TokenizerSpec::default()
        })
        .unwrap()
    }
}
