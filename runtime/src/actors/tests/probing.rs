//! All equalities of the probe, on a model with every kind of state that refuses a step which breaks the rules.

use std::path::PathBuf;

use super::serving::{Setup, collect, expect_exact, expected, prompt, submit};
use crate::{
    engine::{Engine, EngineConfig},
    probe::{CHECKS, Fresh, ProbeConfig, ProbeError, probe},
    snapshot::SnapshotError,
};

impl Fresh for Setup {
    async fn engine(&self) -> Result<Engine, ProbeError> {
        Ok(self.start().await)
    }
}

fn probing(setup: Setup) -> Setup {
    let config = EngineConfig { parallel: 3, batch: 64, context: 400, all_logits: true, ..setup.config.clone() };
    Setup { config, ..setup }
}

fn config(tokens: Vec<u32>) -> ProbeConfig {
    ProbeConfig { greedy: 12, ..ProbeConfig::new(PathBuf::new(), tokens) }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_ways_of_computing_a_sequence_agree() {
    for setup in Setup::all().map(probing) {
        for len in [3, 4, 31, 90] {
            let tokens = prompt(2, 0, len);
            let mut engine = setup.start().await;
            let report = probe(&mut engine, &setup, &config(tokens.clone()), &CHECKS).await.unwrap();
            assert_eq!(report.greedy, expected(&tokens, 12));
            assert_eq!(report.checks.len(), CHECKS.len());
            for (name, check) in &report.checks {
                assert_eq!(check.max_diff, 0.0, "{name}");
                assert!(check.evidence.values().all(|n| *n > 0), "{:?}: {name} of {len}: {check:?}", setup.layout);
            }
            engine.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_in_another_engine_from_bytes() {
    for setup in Setup::all() {
        let engine = setup.start().await;
        let p = prompt(1, 0, 53);
        collect(submit(&engine, &p, 20).await).await;
        let mut conversation = p.clone();
        conversation.extend(expected(&p, 20));
        let bytes = engine.save(conversation.clone()).await.unwrap();
        engine.stop().await;

        let new = setup.start().await;
        // The last token drawn was never computed.
        let computed = conversation.len() - 1;
        assert_eq!(new.restore(bytes.clone()).await.unwrap(), computed);
        conversation.extend([1, 2, 3]);
        assert_eq!(expect_exact(submit(&new, &conversation, 9).await, &conversation, 9).await, computed);

        assert_eq!(new.save(vec![44, 45, 46]).await, Err(SnapshotError::NotCached));
        let mut damaged = bytes;
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        assert!(matches!(new.restore(damaged).await, Err(SnapshotError::Damaged(_))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_model_with_other_state_is_refused() {
    let [paged, hybrid] = Setup::all();
    let engine = paged.start().await;
    let p = prompt(1, 0, 20);
    collect(submit(&engine, &p, 2).await).await;
    let bytes = engine.save(p).await.unwrap();
    // The keys of the fake models are equal, as those of a forged snapshot would be.
    let refused = hybrid.start().await.restore(bytes).await;
    assert!(matches!(refused, Err(SnapshotError::Damaged(_))), "{refused:?}");
}
