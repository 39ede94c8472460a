//! Mixture of experts: routing as data, and the experts.

use serde::{Deserialize, Serialize};

use super::{Act, GluLimit, is_one, one};

/// How a router's outputs become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scoring {
    /// Softmax over all experts.
    Softmax,
    /// `1 / (1 + e^-x)` of each.
    Sigmoid,
    /// `√ln(1 + e^x)` of each.
    SqrtSoftplus,
}

/// See [`super::Op::Route`]. In f32. Ties go to the lower expert.
///
/// The `used` experts of the highest `score + bias` are chosen; their weights are their scores, without the bias
/// (arXiv 2408.15664), divided by `sum + 10⁻²⁰` if `normalize`, times `scale`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Router outputs, one per expert.
    pub scores: String,
    /// Experts chosen per row.
    pub used: usize,
    /// From router outputs to scores.
    pub scoring: Scoring,
    /// Weight `[experts]` that counts in the choice alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
    /// Experts outside the best groups are not chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<ExpertGroups>,
    /// Integers, `used` a row: the choice, made elsewhere (arXiv 2106.04426). Only the weights are computed then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<String>,
    /// Whether the chosen weights are divided by their sum.
    pub normalize: bool,
    /// Factor on the weights.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: f32,
}

impl Default for Route {
    /// Softmax scores as they are; the rest is to be given.
    fn default() -> Self {
        Route {
            scores: String::new(),
            used: 0,
            scoring: Scoring::Softmax,
            bias: None,
            groups: None,
            ids: None,
            normalize: false,
            scale: 1.0,
        }
    }
}

/// Experts in equal groups of neighbours; a group is as good as its two highest `score + bias` together
/// (arXiv 2412.19437).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExpertGroups {
    /// Groups.
    pub count: usize,
    /// Groups that experts are chosen from; of equal ones the lower.
    pub used: usize,
}

/// See [`super::Op::Experts`]. With `e = ids[j]`, the result is `Σ_j weights[j] · f_e(x)`, summed in rank order, where `f` is
///
/// - with all three matrices: `down · (act(gate·x) ⊙ up·x)`,
/// - without a gate: `down · act(up·x)`,
/// - with `up` alone: `act(up·x)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Operand.
    pub x: String,
    /// Integer value: expert ids, best first.
    pub ids: String,
    /// Value of the same width: weights.
    pub weights: String,
    /// Weight `[experts, ffn, width]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
    /// Weight `[experts, ffn, width]`.
    pub up: String,
    /// Weight `[experts, out, ffn]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
    /// The function on the gate, or on `up` where there is none.
    pub act: Act,
    /// Bounds on both factors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<GluLimit>,
    /// Factors on the matrices' products.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scales: Option<ExpertScales>,
}

/// A factor per expert on the product with a matrix, each a weight `[experts]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExpertScales {
    /// On `gate·x`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
    /// On `up·x`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<String>,
    /// On the product with `down`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
}
