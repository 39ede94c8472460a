//! The backend: compiles graphs to programs on one device.

use std::sync::Arc;

use bantam_backend::{
    Backend, CompileError, CompileOptions, Demands, DeviceMemory, MostRows, Program, Progress, StepError, WeightSource,
};
use bantam_graph::{Graph, GraphError, check, link};

use crate::{
    compile::{self, Around, MaxRows, Scratch},
    device::{Buffer, Device, DeviceError, Memory},
    exec::{Laid, Layout},
    linear::Linear,
    pages,
    program::{CompiledGraph, CudaProgram, Results},
    slots,
};

/// Runs graphs on a device.
#[derive(Debug)]
pub struct CudaBackend {
    device: Arc<dyn Device>,
}

impl CudaBackend {
    /// On a device that was opened.
    pub fn on(device: Arc<dyn Device>) -> Self {
        CudaBackend { device }
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn device(&self) -> Result<Option<DeviceMemory>, StepError> {
        let Memory { free, total } = self.device.memory().map_err(pages::failed)?;
        Ok(Some(DeviceMemory { index: self.device.number(), name: self.device.name(), free, total }))
    }

    fn compile(
        &self,
        graph: &Graph,
        weights: &dyn WeightSource,
        options: &CompileOptions,
        progress: Progress<'_>,
    ) -> Result<Box<dyn Program>, CompileError> {
        self.compile_model(&[graph], weights, options, progress)
    }

    fn compile_model(
        &self,
        graphs: &[&Graph],
        weights: &dyn WeightSource,
        options: &CompileOptions,
        progress: Progress<'_>,
    ) -> Result<Box<dyn Program>, CompileError> {
        link(graphs)?;
        let checked = graphs.iter().map(|graph| check(graph)).collect::<Result<Vec<_>, GraphError>>()?;
        let (pools, layouts) = pages::layout(&checked, options, &self.device)?;
        let linear = Arc::new(Linear::new(&self.device, self.device.arch()));
        let scratch = Scratch::default();
        let weights = compile::load(graphs, weights, &linear, progress)?;
        let mixtures = graphs.first().map_or_else(Vec::new, |trunk| compile::mixtures(trunk));
        let counts = vec![0; mixtures.iter().sum()];
        let refused = |e: DeviceError| CompileError::Unsupported {
            node: graphs.first().map(|graph| graph.output.clone()).unwrap_or_default(),
            why: format!("{e}; lower the rows of a step"),
        };
        let tally = Arc::new(Buffer::of_u32(&self.device, &counts, "rows of experts").map_err(refused)?);
        let max = MaxRows { tokens: options.max_rows, logits: options.max_logit_rows };
        let mut parts = Vec::new();
        for (g, (checked, places)) in checked.iter().zip(&layouts).enumerate() {
            let (recurrent, slots) = slots::layout(checked, options.max_tentative, &self.device)?;
            let around = Around {
                device: &self.device,
                weights: &weights,
                places,
                recurrent: &recurrent,
                linear: &linear,
                scratch: &scratch,
                tally: (g == 0).then_some(&tally),
                max,
                ops: options.ops.as_deref(),
                graph: g,
            };
            let plans = compile::plan(checked, &around)?;
            let demands = Demands {
                limits: plans.limits,
                writes: places.writes.clone(),
                reads: places.reads.clone(),
                history: checked.graph.history(),
                hidden: checked.graph.hidden(),
            };
            let mut strides: Vec<usize> = plans.plain.strides().collect();
            strides.sort_unstable();
            strides.dedup();
            let mut tiles = plans.plain.tiles.clone();
            tiles.extend(plans.fast.tiles.iter().filter(|tile| !plans.plain.tiles.contains(tile)));
            let vocab = plans.fast.output_width();
            parts.push(CompiledGraph { plans, demands, layout: Layout { strides, tiles }, slots, vocab });
        }
        let plans = parts.iter().flat_map(|g| [&g.plans.fast, &g.plans.plain]);
        let arena = plans.map(|plan| plan.places.bytes).max().unwrap_or(0);
        Ok(Box::new(CudaProgram {
            arena: Buffer::new(&self.device, arena, "intermediate values").map_err(refused)?,
            step: Buffer::new(&self.device, 1 << 12, "steps").map_err(refused)?,
            device: Arc::clone(&self.device),
            weights,
            groups: pools.iter().map(|pool| pool.group().clone()).collect(),
            pools,
            graphs: parts,
            mixtures,
            tally,
            max: MostRows { tokens: max.tokens, logits: max.logits },
            laid: Laid::default(),
            steps: 0,
            results: Results::default(),
            failed: None,
        }))
    }
}
