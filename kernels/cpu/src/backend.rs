//! The backend: compiles graphs to programs that share one worker team.

use std::sync::Arc;

use bantam_backend::{Backend, CompileError, CompileOptions, Demands, Program, Progress, WeightSource};
use bantam_graph::{Graph, GraphError, check, link};

use crate::{
    compile::{self, Loading, MaxRows, Weights, ir::Op},
    isa::Isa,
    profile::{Profile, Profiling},
    program::{CpuProgram, GraphParts, Parts},
    team::Team,
};

/// Runs graphs on the CPU.
pub struct CpuBackend {
    team: Arc<Team>,
    isa: Isa,
    profiling: Option<Profiling>,
}

impl CpuBackend {
    /// A backend with a team of `threads` members, of which the thread that runs a step is one; 0 means one per physical
    /// core that this process may use.
    ///
    /// `BANTAM_PROFILE` and `BANTAM_TRACE` in the environment have its programs tell where their time goes.
    ///
    /// # Errors
    /// If the system refuses a thread, or the file of a trace.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        Self::with_isa(threads, Isa::detect())
    }

    /// As [`CpuBackend::new`], on the path `isa`, which must be available.
    ///
    /// # Errors
    /// If the system refuses a thread, or the file of a trace.
    pub fn with_isa(threads: usize, isa: Isa) -> std::io::Result<Self> {
        Ok(CpuBackend { team: Arc::new(Team::new(threads)?), isa, profiling: Profiling::from_env()? })
    }

    /// Members of the team.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        "cpu"
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
        let (pools, layouts) = compile::layout(&checked, options)?;
        let (mut weights, indexes) =
            compile::load(graphs, weights, &Loading { isa: self.isa, repack: options.repack }, progress)?;
        let members = self.threads();
        let max = MaxRows { tokens: options.max_rows, logits: options.max_logit_rows, members };
        let mut parts = Vec::new();
        for ((checked, layout), index) in checked.iter().zip(layouts).zip(&indexes) {
            let (plans, limits) =
                compile::plan(checked, &layout.places, &mut weights, index, max, options.ops.as_deref())?;
            let compile::StateLayout { writes, reads, slots, .. } = layout;
            let (history, hidden) = (checked.graph.history(), checked.graph.hidden());
            parts.push(GraphParts { plans, demands: Demands { limits, writes, reads, history, hidden }, slots });
        }
        let trunk = parts.first().map(|graph| &graph.plans.fast);
        let weight_bytes_per_token = trunk.map_or(0, |plan| bytes_per_token(plan, &weights));
        let bytes = parts.iter().map(|graph| graph.plans.fast.places.bytes).sum::<usize>();
        let profile = self
            .profiling
            .clone()
            .map(|asked| Profile::new(asked, self.threads(), parts.iter().map(|graph| &graph.plans.fast)));
        let program = CpuProgram::new(Parts {
            team: Arc::clone(&self.team),
            isa: self.isa,
            weights,
            weight_bytes_per_token,
            pools,
            graphs: parts,
            max,
            profile,
        });
        match program {
            Some(program) => Ok(Box::new(program)),
            None => Err(CompileError::Unsupported {
                node: graphs.first().map(|graph| graph.output.clone()).unwrap_or_default(),
                why: format!("no memory for {bytes} bytes of intermediate values; lower the rows of a step"),
            }),
        }
    }
}

/// Bytes of weights that a token reads: matrices whole, tables by a row, experts by the share that is used.
fn bytes_per_token(plan: &compile::Plan, weights: &Weights) -> u64 {
    let node = |op: &Op| match op {
        Op::Linear { matrix, .. } => weights.matrices[*matrix].bytes(),
        Op::Experts { matrix, assigned, .. } => {
            let matrix = &weights.matrices[*matrix];
            let used = plan.values[*assigned].width / 2;
            matrix.bytes() / matrix.matrices() * used.min(matrix.matrices())
        }
        Op::Embed { table, .. } => weights.tables[*table].row_bytes(),
        Op::Norm { norm, .. } => norm.weight.map_or(0, |w| size_of_val(weights.vectors[w].as_slice())),
        _ => 0,
    };
    plan.schedule.nodes.iter().map(|n| node(&n.op) as u64).sum()
}
