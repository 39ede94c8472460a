//! From a row of logits to a token.
//!
//! The chain, in the order that llama.cpp applies it:
//!
//! 1. logit bias; suppressed tokens and those outside the mask are ruled out;
//! 2. repetition, frequency and presence penalties over the last generated tokens (never the prompt);
//! 3. top-k;
//! 4. top-p;
//! 5. min-p;
//! 6. temperature, and a draw. Temperature 0 takes the most likely token, the lowest id of several.
//!
//! Filters therefore look at the distribution at temperature 1. The draw depends on the seed and the index of the token
//! alone, so a sequence that is replayed or resumed goes on as before.

mod params;
mod penalties;
mod random;
mod sampler;
mod select;

#[cfg(test)]
mod tests;

pub use params::{MOST_LOGPROBS, ParamError, SamplingOverrides, SamplingParams, resolve};
pub use random::random_seed;
pub use sampler::{Logprobs, SampleError, Sampled, Sampler};
