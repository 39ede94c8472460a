//! The chain itself.

use bantam_grammar::{Guide, GuideError};

use super::{
    params::SamplingParams,
    penalties::History,
    random::{random_seed, uniform},
    select::{self, Candidate},
};

/// Log-probabilities under the softmax of the logits as they came: no bias, penalty, mask or temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// Of the sampled token; minus infinity if the model ruled it out.
    pub sampled: f32,
    /// Of the most likely tokens, likeliest first.
    pub top: Vec<(u32, f32)>,
}

/// A sampled token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// Its id.
    pub token: u32,
    /// If asked for.
    pub logprobs: Option<Logprobs>,
    /// Whether the sequence ends with it: what it is held to allows no more.
    pub cut: bool,
}

/// Why a sequence has no next token.
#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    /// None is allowed.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The grammar cannot go on.
    #[error(transparent)]
    Guide(#[from] GuideError),
}

/// No token can be sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("none of {vocab} tokens may be sampled: all are suppressed, biased to -inf, or outside the grammar")]
pub struct SampleError {
    /// Logits given.
    pub vocab: usize,
}

/// Samples the tokens of one sequence.
///
/// [`Sampler::sample`] does not change the sequence; [`Sampler::accept`] does. So a token can be forced or sampled again.
#[derive(Debug)]
pub struct Sampler {
    params: SamplingParams,
    seed: u64,
    history: History,
    /// The logits as they are changed; kept for their memory.
    logits: Vec<f32>,
    candidates: Vec<Candidate>,
    weights: Vec<f64>,
    /// What the tokens are held to.
    guide: Option<Guide>,
}

impl Sampler {
    /// A sampler at the start of a sequence.
    pub fn new(params: SamplingParams) -> Self {
        let mut params = params;
        params.suppress.sort_unstable();
        Sampler {
            seed: params.seed.unwrap_or_else(random_seed),
            history: History::new(&params),
            logits: Vec::new(),
            candidates: Vec::new(),
            weights: Vec::new(),
            guide: None,
            params,
        }
    }

    /// One whose tokens are held to a grammar.
    #[must_use]
    pub fn guided(self, guide: Option<Guide>) -> Self {
        Sampler { guide, ..self }
    }

    /// Samples the next token and takes it. Within a call of a tool, whose arguments have to repeat texts exactly, the
    /// temperature is low and nothing is penalized.
    ///
    /// # Errors
    /// If no token is allowed, or the grammar met its limits.
    pub fn draw_next(&mut self, logits: &[f32]) -> Result<Sampled, DrawError> {
        let Some(mut guide) = self.guide.take() else {
            let sampled = self.sample(logits, None)?;
            self.accept(sampled.token);
            return Ok(sampled);
        };
        let held = guide.in_call().then(|| self.params.within_call());
        let free = held.map(|held| std::mem::replace(&mut self.params, held));
        let sampled = match guide.mask() {
            Ok(mask) => self.sample(logits, mask).map_err(DrawError::from),
            Err(error) => Err(error.into()),
        };
        if let Some(params) = free {
            self.params = params;
        }
        let mut sampled = sampled?;
        self.history.push(sampled.token);
        guide.accept(sampled.token)?;
        sampled.cut = guide.was_cut();
        self.guide = Some(guide);
        Ok(sampled)
    }

    /// Whether the next token takes work that [`Sampler::prepare`] can do before its logits are there.
    pub fn takes_work(&self) -> bool {
        self.guide.as_ref().is_some_and(Guide::takes_work)
    }

    /// Finds which tokens may come next, while the model computes.
    pub fn prepare(&mut self) {
        if let Some(guide) = &mut self.guide {
            guide.prepare();
        }
    }

    /// What holds for the sequence.
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// The seed in use, drawn if none was given: with it the sequence can be repeated.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Tokens accepted so far, which is the index of the next one.
    pub fn generated(&self) -> usize {
        self.history.len()
    }

    /// Takes `token` as the next of the sequence.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
    }

    /// Goes back to the time when `generated` tokens were accepted.
    ///
    /// # Errors
    /// If what holds the tokens remembers less.
    pub fn rewind(&mut self, generated: usize) -> Result<(), GuideError> {
        let taken_back = self.history.len().saturating_sub(generated);
        self.history.truncate(generated);
        self.guide.as_mut().map_or(Ok(()), |guide| guide.rewind(taken_back))
    }

    /// Samples the next token. A logit that is NaN counts as minus infinity. If all that are allowed are minus infinity,
    /// the lowest id of them is taken.
    ///
    /// `allowed` is a bit mask over token ids, 32 to a word, lowest bit first; ids behind its end are not allowed.
    ///
    /// # Errors
    /// If no token is allowed.
    pub fn sample(&mut self, logits: &[f32], allowed: Option<&[u32]>) -> Result<Sampled, SampleError> {
        self.logits.clear();
        let numbers = logits.iter().map(|&l| if l.is_nan() { f32::NEG_INFINITY } else { l.min(f32::MAX) });
        self.logits.extend(numbers);
        let mut logprobs = self.params.logprobs.map(|count| self.measure(count));
        self.change_logits(allowed);
        let chosen = if self.params.temperature == 0.0 {
            select::most_likely(&self.logits)
        } else {
            self.filter();
            self.draw()
        };
        let token = match chosen {
            Some(token) => token,
            None => self.lowest_allowed(allowed).ok_or(SampleError { vocab: logits.len() })?,
        };
        if let Some((logprobs, total)) = &mut logprobs {
            let logit = logits.get(token as usize).copied().unwrap_or(f32::NAN);
            logprobs.sampled = logprob(if logit.is_nan() { f32::NEG_INFINITY } else { logit.min(f32::MAX) }, *total);
        }
        Ok(Sampled { token, logprobs: logprobs.map(|(logprobs, _)| logprobs), cut: false })
    }

    /// Log-probabilities of the most likely tokens, and the logarithm of the sum of all exponentials.
    fn measure(&mut self, count: usize) -> (Logprobs, f64) {
        let best = select::greatest(&self.logits);
        let total = f64::from(best) + select::mass(&self.logits, best).ln();
        select::top(&self.logits, count, &mut self.candidates);
        let top = self.candidates.iter().map(|c| (c.token, logprob(c.logit, total))).collect();
        (Logprobs { sampled: f32::NEG_INFINITY, top }, total)
    }

    fn change_logits(&mut self, allowed: Option<&[u32]>) {
        for &(token, bias) in &self.params.logit_bias {
            if let Some(logit) = self.logits.get_mut(token as usize) {
                *logit = (*logit + bias).min(f32::MAX);
            }
        }
        self.history.penalize(&self.params, &mut self.logits);
        for &token in &self.params.suppress {
            if let Some(logit) = self.logits.get_mut(token as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
        if let Some(mask) = allowed {
            rule_out(mask, &mut self.logits);
        }
    }

    /// Leaves in `candidates` those that pass top-k, top-p and min-p.
    fn filter(&mut self) {
        let SamplingParams { top_k, top_p, min_p, .. } = self.params;
        let best = select::greatest(&self.logits);
        let least = if min_p > 0.0 { best + min_p.ln() } else { f32::NEG_INFINITY };
        let total = if (1..self.logits.len()).contains(&top_k) {
            select::top(&self.logits, top_k, &mut self.candidates);
            self.candidates.iter().map(|c| weight(c.logit, best)).sum()
        } else if top_p < 1.0 {
            let total = select::mass(&self.logits, best);
            let least = least.max(select::least_of_mass(&self.logits, best, f64::from(top_p) * total));
            select::all_from(&self.logits, least, &mut self.candidates);
            select::sort(&mut self.candidates);
            total
        } else {
            return select::all_from(&self.logits, least, &mut self.candidates);
        };
        // Candidates are sorted from here on.
        if top_p < 1.0 {
            let kept = count_to(&self.candidates, best, f64::from(top_p) * total);
            self.candidates.truncate(kept);
        }
        let kept = self.candidates.partition_point(|c| c.logit >= least);
        self.candidates.truncate(kept);
    }

    /// Draws one of the candidates at the temperature.
    fn draw(&mut self) -> Option<u32> {
        let best = self.candidates.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max);
        let temperature = self.params.temperature;
        self.weights.clear();
        self.weights.extend(self.candidates.iter().map(|c| f64::from(select::exp((c.logit - best) / temperature))));
        let total: f64 = self.weights.iter().sum();
        let mut left = uniform(self.seed, self.history.len() as u64) * total;
        for (candidate, weight) in self.candidates.iter().zip(&self.weights) {
            if left < *weight {
                return Some(candidate.token);
            }
            left -= weight;
        }
        // Rounding may leave a little behind the last one.
        let possible = self.candidates.iter().zip(&self.weights).rev().find(|(_, weight)| **weight > 0.0);
        possible.map(|(candidate, _)| candidate.token)
    }

    fn lowest_allowed(&self, allowed: Option<&[u32]>) -> Option<u32> {
        let in_mask = |token: u32| {
            let word = |mask: &[u32]| mask.get(token as usize / 32).copied().unwrap_or(0);
            allowed.is_none_or(|mask| word(mask) >> (token % 32) & 1 == 1)
        };
        let ruled_out = |token: u32| {
            self.params.suppress.binary_search(&token).is_ok()
                || self.params.logit_bias.contains(&(token, f32::NEG_INFINITY))
        };
        (0..).take(self.logits.len()).find(|&token| in_mask(token) && !ruled_out(token))
    }
}

fn weight(logit: f32, best: f32) -> f64 {
    f64::from(select::exp(logit - best))
}

/// Rounding of a sum that should be `total` must not leave `logit` above 0.
fn logprob(logit: f32, total: f64) -> f32 {
    if logit == f32::NEG_INFINITY { logit } else { (f64::from(logit) - total).min(0.0) as f32 }
}

/// How many of the sorted candidates are needed to reach the mass `enough`, or all.
fn count_to(candidates: &[Candidate], best: f32, enough: f64) -> usize {
    let mut reached = 0.0;
    let last = candidates.iter().position(|c| {
        reached += weight(c.logit, best);
        reached >= enough
    });
    last.map_or(candidates.len(), |last| last + 1)
}

/// Sets the logits of tokens outside a bit mask to minus infinity.
fn rule_out(mask: &[u32], logits: &mut [f32]) {
    let words = mask.iter().copied().chain(std::iter::repeat(0));
    for (block, word) in logits.chunks_mut(32).zip(words) {
        match word {
            u32::MAX => {}
            0 => block.fill(f32::NEG_INFINITY),
            _ => {
                for (bit, logit) in block.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}
