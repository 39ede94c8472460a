//! The backend: compiles graphs to programs that share one worker team.

use std::sync::Arc;

use bantam_backend::{Backend, CompileError, CompileOptions, Program, Progress, WeightSource};
use bantam_graph::{Graph, check};

use crate::{
    compile::{self, MaxRows, Weights, ir::Op},
    isa::Isa,
    program::{CpuProgram, Parts},
    team::Team,
};

/// Runs graphs on the CPU.
pub struct CpuBackend {
    team: Arc<Team>,
    isa: Isa,
}

impl CpuBackend {
    /// A backend with a team of `threads` members, of which the thread that runs a step is one; 0 means one per physical
    /// core that this process may use.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        Self::with_isa(threads, Isa::detect())
    }

    /// As [`CpuBackend::new`], on the path `isa`, which must be available.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn with_isa(threads: usize, isa: Isa) -> std::io::Result<Self> {
        Ok(CpuBackend { team: Arc::new(Team::new(threads)?), isa })
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
        let checked = check(graph)?;
        compile::covered(&checked)?;
        let (pools, slots) = compile::layout(graph, options)?;
        let (mut weights, index) = compile::load(graph, weights, self.isa, progress)?;
        let max = MaxRows { tokens: options.max_rows, logits: options.max_logit_rows };
        let plans = compile::plan(&checked, &slots, &mut weights, &index, max)?;
        let weight_bytes_per_token = bytes_per_token(&plans.fast, &weights);
        let bytes = plans.fast.places.bytes;
        let parts =
            Parts { team: Arc::clone(&self.team), isa: self.isa, weights, weight_bytes_per_token, pools, plans, max };
        match CpuProgram::new(parts) {
            Some(program) => Ok(Box::new(program)),
            None => Err(CompileError::Unsupported {
                node: graph.output.clone(),
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
