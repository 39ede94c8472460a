//! From a graph and the headers of its files to [`ModelSizes`]. Layers are told by the numbers that nodes' names end with.

use std::collections::{BTreeSet, HashMap};

use bantam_backend::{Role, WeightError, WeightUse, weight_uses};
use bantam_cpu::{isa::Isa, linear::Packer, state_forms};
use bantam_gguf::GgmlType;
use bantam_graph::{Checked, Graph, Op, Weight, check};

use super::{DenseBytes, HostBytes, LayerSizes, MixtureSizes, ModelSizes, workspace::workspace};
use crate::load::WeightForm;

impl ModelSizes {
    /// The sizes of a graph whose weights have these forms, and in whose steps a sequence has at most `max_tentative` tokens
    /// on trial.
    ///
    /// # Errors
    /// A graph that does not fit in itself, or a weight that cannot be had.
    pub fn of(
        graph: &Graph,
        forms: &dyn Fn(&Weight) -> Result<WeightForm, WeightError>,
        architecture: &str,
        max_tentative: usize,
    ) -> Result<Self, String> {
        let checked = check(graph).map_err(|e| e.to_string())?;
        let map = Map::of(graph);
        let packer = Packer::new(Isa::detect());
        let mut sizes = ModelSizes {
            architecture: architecture.into(),
            layers: vec![LayerSizes::default(); map.layers],
            workspace: workspace(&checked),
            cuts: map.cuts(graph),
            ..ModelSizes::default()
        };
        sizes.add_states(&checked, &map, max_tentative)?;
        let mut mixtures: HashMap<usize, MixtureSizes> = HashMap::new();
        for used in weight_uses(graph) {
            let form = forms(used.weight).map_err(|e| e.to_string())?;
            match &graph.nodes[used.node].op {
                Op::Experts(op) if used.role == Role::Matrix => {
                    let width = checked.types.get(&op.ids).map_or(0, |ty| ty.width);
                    let mixture = mixtures.entry(used.node).or_default();
                    add_expert(mixture, &form, width, map.of_node.get(used.node).copied().flatten(), &packer);
                }
                _ => sizes.add_dense(&used, &form, &map, &packer),
            }
        }
        let mut mixtures: Vec<(usize, MixtureSizes)> = mixtures.into_iter().collect();
        mixtures.sort_unstable_by_key(|(node, _)| *node);
        sizes.mixtures = mixtures.into_iter().map(|(_, mixture)| mixture).collect();
        Ok(sizes)
    }

    fn add_dense(&mut self, used: &WeightUse<'_>, form: &WeightForm, map: &Map, packer: &Packer) {
        if used.role == Role::Table && !form.computed {
            self.tables = self.tables.saturating_add(form.bytes());
            return;
        }
        if matches!(used.role, Role::Table | Role::Integers) {
            self.computed_tables = self.computed_tables.saturating_add(form.entries().saturating_mul(4));
            return;
        }
        let bytes = match used.role {
            Role::Matrix => matrix(form, packer),
            Role::Vector | Role::Table | Role::Integers => {
                let bytes = form.entries().saturating_mul(4);
                let host = HostBytes { repacked: bytes, computed: bytes, mapped: 0 };
                DenseBytes { device: bytes, device_q8: bytes, host }
            }
        };
        let part = match map.of_node.get(used.node).copied().flatten() {
            None => &mut self.head,
            Some(layer) if map.is_mixer(layer, used.node) => &mut self.layers[layer].mixer,
            Some(layer) => &mut self.layers[layer].ffn,
        };
        part.device = part.device.saturating_add(bytes.device);
        part.device_q8 = part.device_q8.saturating_add(bytes.device_q8);
        part.host = part.host + bytes.host;
    }

    fn add_states(&mut self, checked: &Checked<'_>, map: &Map, max_tentative: usize) -> Result<(), String> {
        let forms = state_forms(std::slice::from_ref(checked), max_tentative).map_err(|e| e.to_string())?;
        let Some(forms) = forms.into_iter().next() else { return Ok(()) };
        // A graph without layers has one, if it has state.
        if self.layers.is_empty() && !(forms.rows.is_empty() && forms.slots.is_empty()) {
            self.layers.push(LayerSizes::default());
            self.cuts = vec![0];
        }
        for form in forms.rows {
            let name = checked.graph.states.get(form.state).map_or("", |state| state.name.as_str());
            if let Some(layer) = self.layers.get_mut(map.of_state(name)) {
                layer.rows.push(form);
            }
        }
        for (state, bytes) in checked.graph.recurrent.iter().zip(forms.slots) {
            if let Some(layer) = self.layers.get_mut(map.of_state(&state.name)) {
                layer.slot = layer.slot.saturating_add(bytes as u64);
            }
        }
        Ok(())
    }
}

/// A dense matrix.
fn matrix(form: &WeightForm, packer: &Packer) -> DenseBytes {
    let device = form.bytes();
    let is_half = matches!(form.ty, GgmlType::F16 | GgmlType::BF16);
    let in_8_bits = WeightForm { ty: GgmlType::Q8_0, ..form.clone() };
    let blocks = form.shape.last().is_some_and(|cols| GgmlType::Q8_0.row_bytes(*cols).is_some());
    let device_q8 = if is_half && blocks { in_8_bits.bytes() } else { device };
    DenseBytes { device, device_q8, host: on_host(form, packer) }
}

fn on_host(form: &WeightForm, packer: &Packer) -> HostBytes {
    let packed = match form.shape[..] {
        [rows, cols] => packer.bytes(form.ty, 1, rows, cols),
        [matrices, rows, cols] => packer.bytes(form.ty, matrices, rows, cols),
        _ => None,
    };
    let repacked = packed.map_or(form.bytes(), |bytes| bytes as u64);
    match form.computed {
        true => HostBytes { repacked, computed: repacked, mapped: 0 },
        false => HostBytes { repacked, computed: 0, mapped: form.bytes() },
    }
}

fn add_expert(mixture: &mut MixtureSizes, form: &WeightForm, used: usize, layer: Option<usize>, packer: &Packer) {
    let experts = form.shape.first().copied().unwrap_or(0);
    mixture.layer = layer.unwrap_or(0);
    mixture.used = used;
    mixture.experts = experts;
    mixture.expert = mixture.expert.saturating_add(form.bytes().checked_div(experts as u64).unwrap_or(0));
    mixture.host = mixture.host + on_host(form, packer);
}

/// Which node belongs where.
struct Map {
    /// Layers.
    layers: usize,
    /// Layer of each node, if it belongs to one.
    of_node: Vec<Option<usize>>,
    /// By layer, the last node of its mixer; none where it has no state.
    mixers: Vec<Option<usize>>,
    /// Layer of the node that writes each state.
    states: HashMap<String, usize>,
}

impl Map {
    fn of(graph: &Graph) -> Self {
        let number = |name: &str| name.rsplit_once('.').and_then(|(_, number)| number.parse::<u64>().ok());
        let numbers: Vec<Option<u64>> = graph.nodes.iter().map(|node| number(&node.name)).collect();
        let distinct: BTreeSet<u64> = numbers.iter().flatten().copied().collect();
        let index: HashMap<u64, usize> = distinct.iter().enumerate().map(|(i, number)| (*number, i)).collect();
        let of_node: Vec<Option<usize>> = numbers.iter().map(|number| index.get(&(*number)?).copied()).collect();
        let layers = distinct.len();
        let mut mixers = vec![None; layers];
        let mut open = vec![false; layers];
        let mut states = HashMap::new();
        for (i, (node, layer)) in graph.nodes.iter().zip(&of_node).enumerate() {
            for state in node.op.written_states() {
                states.entry(state.to_owned()).or_insert(layer.unwrap_or(0));
            }
            let Some(layer) = *layer else { continue };
            if !node.op.states().is_empty() {
                (mixers[layer], open[layer]) = (Some(i), true);
            } else if open[layer] {
                // Up to where its result joins the others' sum.
                mixers[layer] = Some(i);
                open[layer] = !matches!(node.op, Op::Add { .. } | Op::StreamUpdate(_));
            }
        }
        Map { layers, of_node, mixers, states }
    }

    fn is_mixer(&self, layer: usize, node: usize) -> bool {
        self.mixers.get(layer).copied().flatten().is_some_and(|last| node <= last)
    }

    fn of_state(&self, name: &str) -> usize {
        self.states.get(name).copied().unwrap_or(0)
    }

    /// Layers from which on no state of a layer before them is read.
    fn cuts(&self, graph: &Graph) -> Vec<usize> {
        let mut is_cut = vec![true; self.layers];
        for (node, layer) in graph.nodes.iter().zip(&self.of_node) {
            let Some(layer) = *layer else { continue };
            for owner in node.op.states().into_iter().filter_map(|state| self.states.get(state).copied()) {
                let (first, last) = (owner.min(layer), owner.max(layer));
                is_cut[first + 1..=last].fill(false);
            }
        }
        is_cut.iter().enumerate().filter(|(_, is_cut)| **is_cut).map(|(layer, _)| layer).collect()
    }
}
