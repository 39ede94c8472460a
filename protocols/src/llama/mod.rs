//! The routes that llama.cpp's tools know: its own protocol of texts, health, properties, slots, the tokenizer and the
//! template; and the experts.

pub(crate) mod completion;
mod errors;
pub(crate) mod experts;
pub(crate) mod health;
pub(crate) mod others;
pub(crate) mod props;
pub(crate) mod slots;
pub(crate) mod text;

pub(crate) use errors::in_llama_form;
