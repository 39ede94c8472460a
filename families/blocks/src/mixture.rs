//! Mixtures of experts: routing with its variants, the experts' matrices, and a shared expert beside them.

use bantam_family_api::{FamilyError, Fields};
use bantam_graph::{Act, ExpertGroups, ExpertScales, Experts, GluLimit, GraphBuilder, Route, Scoring};
use serde::Serialize;

use super::{
    config::{extent, extent_opt},
    ffn::Gated,
    numbers::{SCALE, SCALE_OR_ZERO, number, number_opt},
    tensors::{Projection, Tensors},
};

/// How a router chooses and weights experts.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Routing {
    /// Experts of a layer.
    pub count: usize,
    /// Experts that a token goes through.
    pub used: usize,
    /// From router outputs to scores.
    pub scoring: Scoring,
    /// Whether a bias of its own takes part in the choice.
    pub biased_choice: bool,
    /// Experts outside the best groups are not chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<ExpertGroups>,
    /// Whether the chosen weights are divided by their sum.
    pub normalize: bool,
    /// Factor on the weights.
    pub scale: f32,
}

impl Routing {
    /// Whether so many experts, as `key` says, can be chosen.
    ///
    /// # Errors
    /// If not.
    pub fn check(&self, fields: &Fields<'_>, key: &str) -> Result<(), FamilyError> {
        let in_groups = |groups: ExpertGroups| (self.count / groups.count.max(1)).saturating_mul(groups.used);
        let most = self.groups.map_or(self.count, in_groups);
        if (1..=most).contains(&self.used) {
            return Ok(());
        }
        Err(fields.wrong(key, &format!("1 to {most}, the experts that can be chosen"), &self.used.to_string()))
    }
}

/// Sizes of a mixture, and its router.
#[derive(Clone, Debug, Serialize)]
pub struct MixtureShape {
    /// The router.
    #[serde(flatten)]
    pub routing: Routing,
    /// Entries between an expert's matrices.
    pub width: usize,
    /// Entries between the matrices of the expert that every token goes through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_width: Option<usize>,
}

impl MixtureShape {
    /// Reads `expert_count`, `expert_used_count` and `expert_feed_forward_length` (or else `feed_forward_length`), for a
    /// softmax router whose chosen weights are divided by their sum.
    ///
    /// # Errors
    /// The key that does not fit.
    pub fn read(fields: &Fields<'_>) -> Result<Self, FamilyError> {
        let (count, used) = counts(fields, ["expert_count", "expert_used_count"])?;
        let width = match extent_opt(fields, "expert_feed_forward_length")? {
            Some(width) => width,
            None => extent(fields, "feed_forward_length")?,
        };
        let scoring = Scoring::Softmax;
        let routing = Routing { count, used, scoring, biased_choice: false, groups: None, normalize: true, scale: 1.0 };
        Ok(MixtureShape { routing, width, shared_width: None })
    }
}

/// How many experts there are, and how many of them are used.
///
/// # Errors
/// The key that does not fit.
pub fn counts(fields: &Fields<'_>, [count, used]: [&str; 2]) -> Result<(usize, usize), FamilyError> {
    let (experts, chosen) = (extent(fields, count)?, extent(fields, used)?);
    if chosen > experts {
        return Err(fields.wrong(used, &format!("at most the {experts} of {count}"), &chosen.to_string()));
    }
    Ok((experts, chosen))
}

/// `expert_group_count` and `expert_group_used_count`, for so many experts; none where there is but one group.
///
/// # Errors
/// Groups that do not divide the experts, or more used than there are.
pub fn expert_groups(fields: &Fields<'_>, experts: usize) -> Result<Option<ExpertGroups>, FamilyError> {
    const COUNT: &str = "expert_group_count";
    const USED: &str = "expert_group_used_count";
    let count = fields.usize_opt(COUNT)?.unwrap_or(0);
    if count <= 1 {
        return Ok(None);
    }
    if !experts.is_multiple_of(count) {
        return Err(fields.wrong(COUNT, &format!("a divisor of the {experts} experts"), &count.to_string()));
    }
    let (count, used) = counts(fields, [COUNT, USED])?;
    Ok(Some(ExpertGroups { count, used }))
}

/// `expert_gating_func`, or `usual` where it is not given.
///
/// # Errors
/// Another function than those of [`Scoring`].
pub fn scoring(fields: &Fields<'_>, usual: Scoring) -> Result<Scoring, FamilyError> {
    const KEY: &str = "expert_gating_func";
    match fields.usize_opt(KEY)? {
        None => Ok(usual),
        Some(1) => Ok(Scoring::Softmax),
        Some(2) => Ok(Scoring::Sigmoid),
        Some(4) => Ok(Scoring::SqrtSoftplus),
        Some(n) => Err(fields.wrong(KEY, "1 (softmax), 2 (sigmoid) or 4 (root of softplus)", &n.to_string())),
    }
}

const WEIGHTS_SCALE: &str = "expert_weights_scale";

/// `expert_weights_scale`: 1 where it is not given or 0.
///
/// # Errors
/// If it is no number of 0 or more.
pub fn weights_scale(fields: &Fields<'_>) -> Result<f32, FamilyError> {
    Ok(number_opt(fields, WEIGHTS_SCALE, SCALE_OR_ZERO)?.filter(|scale| *scale != 0.0).unwrap_or(1.0))
}

/// `expert_weights_scale`, for families whose models all have one.
///
/// # Errors
/// If it is missing or no number above 0.
pub fn needed_weights_scale(fields: &Fields<'_>) -> Result<f32, FamilyError> {
    number(fields, WEIGHTS_SCALE, SCALE)
}

/// A router: the matrix from a row to a number per expert, and what becomes of these.
#[derive(Clone, Debug)]
pub struct Router {
    matrix: Projection,
    bias: Option<String>,
    route: Route,
}

impl Router {
    /// `ffn_gate_inp` and, if it counts in the choice, `exp_probs_b.bias`.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare(t: &mut Tensors<'_>, routing: Routing, hidden: usize) -> Result<Self, FamilyError> {
        let matrix = t.matrix("ffn_gate_inp", routing.count, hidden)?;
        Self::choosing(t, matrix, routing)
    }

    fn choosing(t: &mut Tensors<'_>, matrix: Projection, routing: Routing) -> Result<Self, FamilyError> {
        let bias = routing.biased_choice.then(|| t.exactly("exp_probs_b.bias", &[routing.count])).transpose()?;
        Ok(Self::new(matrix, bias, routing))
    }

    fn new(matrix: Projection, bias: Option<String>, routing: Routing) -> Self {
        let Routing { used, scoring, groups, normalize, scale, .. } = routing;
        Router { matrix, bias, route: Route { used, scoring, groups, normalize, scale, ..Route::default() } }
    }

    /// Ids and weights of the experts of `x`, by nodes of these two names.
    pub fn apply(&self, g: &mut GraphBuilder, names: [&str; 2], x: &str) -> (String, String) {
        self.weigh(g, names, x, None)
    }

    /// As [`Router::apply`], with the experts already chosen if `ids` are given.
    fn weigh(
        &self,
        g: &mut GraphBuilder,
        [scores, route]: [&str; 2],
        x: &str,
        ids: Option<String>,
    ) -> (String, String) {
        let scores = self.matrix.apply(g, scores, x);
        g.route(route, Route { scores, bias: self.bias.clone(), ids, ..self.route.clone() })
    }
}

/// The weights of one layer's mixture.
#[derive(Clone, Debug)]
pub struct Mixture {
    router: Router,
    gate: String,
    up: String,
    down: String,
    limit: Option<GluLimit>,
    scales: Option<ExpertScales>,
    shared: Option<Gated>,
    /// One number a row, whose sigmoid scales the shared expert.
    shared_gate: Option<Projection>,
}

impl Mixture {
    /// `ffn_gate_inp`, `ffn_gate_exps` and `ffn_up_exps` (or both as `ffn_gate_up_exps`), `ffn_down_exps`, and as the shape
    /// says `exp_probs_b.bias` and the three `_shexp` matrices of the shared expert.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare(t: &mut Tensors<'_>, shape: &MixtureShape, hidden: usize) -> Result<Self, FamilyError> {
        t.refuse("ffn_down_exps", "scale")?;
        let router = t.matrix("ffn_gate_inp", shape.routing.count, hidden)?;
        Self::around(t, router, shape, hidden)
    }

    /// As [`Mixture::declare`], where `ffn_gate_inp.scale` is applied by the caller and `ffn_down_exps.scale` is a factor
    /// per expert.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare_scaled(t: &mut Tensors<'_>, shape: &MixtureShape, hidden: usize) -> Result<Self, FamilyError> {
        t.refuse("ffn_gate_inp", "bias")?;
        let router = t.bare_matrix("ffn_gate_inp", shape.routing.count, hidden)?;
        let mut mixture = Self::around(t, router, shape, hidden)?;
        let down = Some(t.exactly("ffn_down_exps.scale", &[shape.routing.count])?);
        mixture.scales = Some(ExpertScales { down, ..ExpertScales::default() });
        Ok(mixture)
    }

    fn around(
        t: &mut Tensors<'_>,
        router: Projection,
        shape: &MixtureShape,
        hidden: usize,
    ) -> Result<Self, FamilyError> {
        let &MixtureShape { routing: Routing { count, .. }, width, shared_width } = shape;
        let outer = [count, width, hidden];
        let [gate, up] = if t.has("ffn_gate_exps") || t.has("ffn_up_exps") {
            [t.plain("ffn_gate_exps", &outer)?, t.plain("ffn_up_exps", &outer)?]
        } else {
            t.split_experts("ffn_gate_up_exps", ["ffn_gate_exps", "ffn_up_exps"], outer)?
        };
        t.refuse("ffn_down_exps", "bias")?;
        let down = t.exactly("ffn_down_exps.weight", &[count, hidden, width])?;
        let router = Router::choosing(t, router, shape.routing)?;
        let shared = shared_width.map(|width| Gated::declare(t, "_shexp", width, hidden)).transpose()?;
        Ok(Mixture { router, gate, up, down, limit: None, scales: None, shared, shared_gate: None })
    }

    /// The same mixture with bounds on the factors of the routed and of the shared experts.
    pub fn with_limits(self, [limit, shared]: [Option<GluLimit>; 2]) -> Self {
        Mixture { limit, shared: self.shared.map(|gated| gated.with_limit(shared)), ..self }
    }

    /// Adds `ffn_gate_inp_shexp`, the gate of the shared expert.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn with_shared_gate(mut self, t: &mut Tensors<'_>, hidden: usize) -> Result<Self, FamilyError> {
        self.shared_gate = Some(t.matrix("ffn_gate_inp_shexp", 1, hidden)?);
        Ok(self)
    }

    /// Routed and shared experts of `x`, added up.
    pub fn apply(&self, g: &mut GraphBuilder, x: &str, act: Act) -> String {
        self.apply_chosen(g, x, act, None)
    }

    /// As [`Mixture::apply`], with the routed experts already chosen if `ids` are given.
    pub fn apply_chosen(&self, g: &mut GraphBuilder, x: &str, act: Act, ids: Option<String>) -> String {
        let Some(shared) = &self.shared else { return self.weighted(g, "ffn_out", [x, x], act, ids) };
        let routed = self.weighted(g, "ffn_routed", [x, x], act, ids);
        let mut shared = shared.apply(g, "ffn_shared", x, act);
        if let Some(gate) = &self.shared_gate {
            let gate = gate.apply(g, "ffn_shared_weight", x);
            let gate = g.activate("ffn_shared_share", &gate, Act::Sigmoid);
            shared = g.mul("ffn_shared_weighted", &shared, &gate);
        }
        g.add("ffn_out", &routed, &shared)
    }

    /// The routed experts of `x`, chosen by `router_input`.
    pub fn routed(&self, g: &mut GraphBuilder, name: &str, router_input: &str, x: &str, act: Act) -> String {
        self.weighted(g, name, [router_input, x], act, None)
    }

    fn weighted(
        &self,
        g: &mut GraphBuilder,
        name: &str,
        [router_input, x]: [&str; 2],
        act: Act,
        ids: Option<String>,
    ) -> String {
        let (ids, weights) = self.router.weigh(g, ["ffn_router", "ffn_route"], router_input, ids);
        let (gate, up, down) = (Some(self.gate.clone()), self.up.clone(), Some(self.down.clone()));
        let (limit, scales) = (self.limit, self.scales.clone());
        g.experts(name, Experts { x: x.into(), ids, weights, gate, up, down, act, limit, scales })
    }
}

/// Experts that each make the values of attention (one matrix, then SiLU).
#[derive(Clone, Debug)]
pub struct ValueMixture {
    router: Router,
    experts: String,
}

impl ValueMixture {
    /// `attn_v_gate`, whose bias counts in the choice alone, and `attn_v_exps` of `rows` each.
    ///
    /// # Errors
    /// The tensor that does not fit.
    pub fn declare(t: &mut Tensors<'_>, routing: Routing, rows: usize, hidden: usize) -> Result<Self, FamilyError> {
        t.refuse("attn_v_gate", "scale")?;
        let router = t.bare_matrix("attn_v_gate", routing.count, hidden)?;
        let bias = Some(t.exactly("attn_v_gate.bias", &[routing.count])?);
        let experts = t.plain("attn_v_exps", &[routing.count, rows, hidden])?;
        Ok(ValueMixture { router: Router::new(router, bias, routing), experts })
    }

    /// Values of `x`.
    pub fn apply(&self, g: &mut GraphBuilder, x: &str) -> String {
        let (ids, weights) = self.router.apply(g, ["v_router", "v_route"], x);
        let (x, up, act) = (x.into(), self.experts.clone(), Act::Silu);
        g.experts("v_proj", Experts { x, ids, weights, gate: None, up, down: None, act, limit: None, scales: None })
    }
}
