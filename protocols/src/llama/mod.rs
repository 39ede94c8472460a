//! The routes that llama.cpp's tools know: health, properties, slots, the tokenizer and the template; and the experts.

pub(crate) mod experts;
pub(crate) mod health;
pub(crate) mod props;
pub(crate) mod slots;
pub(crate) mod text;
