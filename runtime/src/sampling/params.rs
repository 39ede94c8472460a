//! What is asked for, by whom, and what holds.

/// Most alternatives whose log-probabilities may be asked for.
pub const MOST_LOGPROBS: usize = 128;

/// What holds for one sequence. The default is what holds if nobody says anything.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; 0 takes the most likely token. Finite, at least 0.
    pub temperature: f32,
    /// Keeps the most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the most likely tokens that together reach this probability. In `[0, 1]`; 1 keeps all, 0 the most likely one.
    pub top_p: f32,
    /// Keeps tokens at least this likely in relation to the most likely one. In `[0, 1]`; 0 keeps all.
    pub min_p: f32,
    /// Divides the positive and multiplies the negative logits of repeated tokens. Finite, above 0; 1 is off.
    pub repetition_penalty: f32,
    /// Is taken from the logits of repeated tokens. In `[-2, 2]`; 0 is off.
    pub presence_penalty: f32,
    /// Is taken from the logits of repeated tokens once for each time. In `[-2, 2]`; 0 is off.
    pub frequency_penalty: f32,
    /// How many of the last generated tokens count as repeated. The prompt's never do.
    pub penalty_window: usize,
    /// Seed of the draws; `None` draws one.
    pub seed: Option<u64>,
    /// Is added to logits, by token. Not NaN, below infinity; minus infinity rules a token out. Ids that the vocabulary
    /// lacks mean nothing.
    pub logit_bias: Vec<(u32, f32)>,
    /// Tokens that are never sampled.
    pub suppress: Vec<u32>,
    /// Whether log-probabilities are wanted, and of how many of the most likely tokens besides the sampled one.
    pub logprobs: Option<usize>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        SamplingParams {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: 64,
            seed: None,
            logit_bias: Vec::new(),
            suppress: Vec::new(),
            logprobs: None,
        }
    }
}

/// What somebody asks for, of [`SamplingParams`].
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "each field is the one of the same name in `SamplingParams`")]
pub struct SamplingOverrides {
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub penalty_window: Option<usize>,
    pub seed: Option<u64>,
    pub logit_bias: Option<Vec<(u32, f32)>>,
    pub suppress: Option<Vec<u32>>,
    pub logprobs: Option<usize>,
}

/// A value out of range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {}", self.problem())]
pub struct ParamError {
    /// The field, as in [`SamplingParams`].
    pub field: String,
    /// What it was.
    pub value: String,
    /// What it may be.
    pub range: &'static str,
}

impl ParamError {
    /// What is wrong, a clause that follows the field's name.
    pub fn problem(&self) -> String {
        format!("is {}; it must be {}", self.value, self.range)
    }
}

/// Joins what is asked for. Field by field the request wins over the server's flags, these win over the model's own
/// configuration, and this wins over [`SamplingParams::default`]. Only suppressed tokens add up: they are facts about
/// the model as much as wishes.
///
/// # Errors
/// The first field that is out of range.
pub fn resolve(
    request: &SamplingOverrides,
    flags: &SamplingOverrides,
    model: &SamplingOverrides,
) -> Result<SamplingParams, ParamError> {
    let builtin = SamplingParams::default();
    let layers = [request, flags, model];
    macro_rules! first {
        ($field:ident) => {
            layers.iter().find_map(|layer| layer.$field.clone())
        };
    }
    let mut suppress: Vec<u32> = layers.iter().flat_map(|layer| layer.suppress.iter().flatten().copied()).collect();
    suppress.sort_unstable();
    suppress.dedup();
    let params = SamplingParams {
        temperature: first!(temperature).unwrap_or(builtin.temperature),
        top_k: first!(top_k).unwrap_or(builtin.top_k),
        top_p: first!(top_p).unwrap_or(builtin.top_p),
        min_p: first!(min_p).unwrap_or(builtin.min_p),
        repetition_penalty: first!(repetition_penalty).unwrap_or(builtin.repetition_penalty),
        presence_penalty: first!(presence_penalty).unwrap_or(builtin.presence_penalty),
        frequency_penalty: first!(frequency_penalty).unwrap_or(builtin.frequency_penalty),
        penalty_window: first!(penalty_window).unwrap_or(builtin.penalty_window),
        seed: first!(seed),
        logit_bias: first!(logit_bias).unwrap_or(builtin.logit_bias),
        suppress,
        logprobs: first!(logprobs),
    };
    params.validate()?;
    Ok(params)
}

/// Most temperature within a call of a tool.
const CALL_TEMPERATURE: f32 = 0.2;

impl SamplingParams {
    /// The same within a call of a tool.
    pub(super) fn within_call(&self) -> Self {
        SamplingParams {
            temperature: self.temperature.min(CALL_TEMPERATURE),
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            ..self.clone()
        }
    }

    /// Checks that every field is in range.
    ///
    /// # Errors
    /// The first field that is not.
    pub fn validate(&self) -> Result<(), ParamError> {
        let finite_from_0 = (0.0..=f32::MAX).contains(&self.temperature);
        check("temperature", &self.temperature, finite_from_0, "a finite number of at least 0")?;
        check("top_p", &self.top_p, (0.0..=1.0).contains(&self.top_p), "from 0 to 1")?;
        check("min_p", &self.min_p, (0.0..=1.0).contains(&self.min_p), "from 0 to 1")?;
        let positive = self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite();
        check("repetition_penalty", &self.repetition_penalty, positive, "a finite number above 0 (1 is off)")?;
        for (field, value) in
            [("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)]
        {
            check(field, &value, (-2.0..=2.0).contains(&value), "from -2 to 2 (0 is off)")?;
        }
        for (token, bias) in &self.logit_bias {
            check(&format!("logit_bias[{token}]"), bias, *bias < f32::INFINITY, "a number below infinity")?;
        }
        let logprobs = self.logprobs.unwrap_or(0);
        check("logprobs", &logprobs, logprobs <= MOST_LOGPROBS, "at most 128")
    }
}

fn check(field: &str, value: &impl ToString, holds: bool, range: &'static str) -> Result<(), ParamError> {
    if holds { Ok(()) } else { Err(ParamError { field: field.to_owned(), value: value.to_string(), range }) }
}
