//! How tokens are drafted for a model, to be verified by it several at once.

use bantam_graph::{Extension, Graph, GraphError, link};
use serde::{Deserialize, Serialize};

/// A draft: what proposes tokens, and what the trunk must do for it.
///
/// Where it comes in a file of its own, weights name that file's tensors as `draft.NAME`, and the trunk's by their own name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// What the trunk computes, stores and taps besides, for every token.
    pub trunk: Extension,
    /// From rows to logits. Its hidden inputs are the trunk's taps.
    pub graph: Graph,
    /// How it is run.
    pub method: DraftMethod,
}

/// How a draft graph is run. Tokens of the sequence are `x_0, x_1, …`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DraftMethod {
    /// One token after another (arXiv 2404.19737). Row `t` of the draft's sequence reads the token `x_(t+shift)` and the
    /// trunk's tap rows of the token before that one (zeros before the first), and proposes the token after it.
    ///
    /// To go on drafting, the next row reads the proposed token and this row's own taps instead. Rows of accepted tokens
    /// are then computed again with the trunk's, which replace them: the sequence is truncated to the last row that was.
    /// So a draft can go on after `n` tokens if its own state is there and the trunk's tap rows of token `n - 1`.
    Chain {
        /// 0 or 1. Rotary positions are rows' indexes either way: only their differences count.
        shift: usize,
        /// Whether the graph has no state of its own and stays at the row of the first proposal: then it runs over no
        /// accepted tokens, and each row of a proposal has the same `start`.
        standing: bool,
    },
    /// A whole block in one step of the graph. With `n` tokens taken in by the trunk and the next one known, its rows at
    /// `n, n+1, …` read that token and then mask tokens. What the rows store is truncated again.
    Block {
        /// Rows of a block.
        size: usize,
        /// The token that stands for those to be found.
        mask_token: u32,
        /// Row `i` proposes the token at `n + i + ahead`: 0 (the first row then proposes nothing new) or 1.
        ahead: usize,
        /// Makes the proposals depend on each other: run row after row, left to right, on the token before the proposed
        /// one and the block's tap rows; its logits replace the block's. Its first tap, if any, is the probability that the
        /// proposal holds.
        refine: Option<Graph>,
    },
}

impl Draft {
    /// The model's graphs, the extended trunk first, checked against each other.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn graphs(&self, trunk: &Graph) -> Result<Vec<Graph>, GraphError> {
        let mut graphs = vec![self.trunk.apply(trunk)?, self.graph.clone()];
        if let DraftMethod::Block { refine: Some(refine), .. } = &self.method {
            graphs.push(refine.clone());
        }
        link(&graphs.iter().collect::<Vec<_>>())?;
        self.chained()?;
        Ok(graphs)
    }

    /// Whether a chained graph's taps can stand in for the trunk's.
    fn chained(&self) -> Result<(), GraphError> {
        let DraftMethod::Chain { shift, .. } = self.method else { return Ok(()) };
        let refuse = |why: String| {
            let name = self.graph.name.clone();
            Err(GraphError::Invalid { graph: name.clone(), what: "graph", name, why })
        };
        if shift > 1 {
            return refuse(format!("shift must be 0 or 1, found {shift}"));
        }
        let types = bantam_graph::check(&self.graph)?.types;
        let taps: Vec<Option<usize>> = self.graph.taps.iter().map(|tap| types.get(tap).map(|t| t.width)).collect();
        let hidden: Vec<Option<usize>> = self.graph.hidden().into_iter().map(Some).collect();
        if taps != hidden {
            return refuse(format!("its taps {taps:?} must have the widths of its hidden inputs {hidden:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bantam_graph::{GraphBuilder, InputSource};

    use super::*;

    const WIDTH: usize = 8;

    fn finish(mut g: GraphBuilder, hidden: &str) -> Graph {
        let rows = g.logit_rows("rows", hidden);
        let output = g.tensor("output", &[40, WIDTH]);
        let logits = g.linear("logits", &rows, &output, None);
        g.finish(&logits).unwrap()
    }

    fn trunk() -> Graph {
        let mut g = GraphBuilder::new("trunk");
        let ids = g.input("ids", InputSource::TokenIds);
        let table = g.tensor("embd", &[40, WIDTH]);
        let x = g.embed("result_norm", &ids, &table, 1.0);
        finish(g, &x)
    }

    /// A graph that reads a row and the token after it, and taps what it makes of them.
    fn block(name: &str) -> Graph {
        let mut g = GraphBuilder::new(name);
        let ids = g.input("ids", InputSource::TokenIds);
        let table = g.tensor("embd", &[40, WIDTH]);
        let e = g.embed("embed", &ids, &table, 1.0);
        let hidden = g.input("hidden", InputSource::Hidden { index: 0, width: WIDTH });
        let x = g.add("x", &e, &hidden);
        g.tap(&x);
        finish(g, &x)
    }

    fn draft(method: DraftMethod) -> Draft {
        let trunk = Extension { taps: vec!["result_norm".into()], ..Extension::default() };
        Draft { trunk, graph: block("draft"), method }
    }

    fn refusal(draft: &Draft) -> String {
        draft.graphs(&trunk()).unwrap_err().to_string()
    }

    #[test]
    fn a_chain_makes_two_graphs_and_a_refined_block_three() {
        let chain = draft(DraftMethod::Chain { shift: 1, standing: false });
        let graphs = chain.graphs(&trunk()).unwrap();
        assert_eq!((graphs.len(), graphs[0].taps.as_slice()), (2, &["result_norm".to_owned()][..]));
        let refine = Some(block("refine"));
        let block = draft(DraftMethod::Block { size: 4, mask_token: 3, ahead: 1, refine });
        assert_eq!(block.graphs(&trunk()).unwrap().len(), 3);
    }

    #[test]
    fn a_chain_must_be_able_to_feed_itself() {
        let mut chain = draft(DraftMethod::Chain { shift: 1, standing: false });
        chain.graph.taps.clear();
        assert!(refusal(&chain).contains("its taps [] must have the widths"));
        assert!(refusal(&draft(DraftMethod::Chain { shift: 2, standing: false })).contains("shift must be 0 or 1"));
        let mut untapped = draft(DraftMethod::Chain { shift: 1, standing: false });
        untapped.trunk.taps.clear();
        assert!(refusal(&untapped).contains("no tap 0"));
    }

    #[test]
    fn a_draft_survives_its_json_form() {
        let refine = Some(block("refine"));
        let draft = draft(DraftMethod::Block { size: 4, mask_token: 3, ahead: 1, refine });
        let json = serde_json::to_string(&draft).unwrap();
        assert_eq!(serde_json::from_str::<Draft>(&json).unwrap(), draft);
    }
}
