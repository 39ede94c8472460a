//! The cache in a directory: what a later engine finds there, and what saving it costs those that run.

use std::{fs, path::Path, time::Duration};

use super::serving::{Setup, collect, expect_exact, expected, prompt, submit, until};
use crate::engine::{Engine, EngineConfig};

/// Both layouts, with this directory, saved at the end only.
fn keeping(folder: &Path) -> [Setup; 2] {
    Setup::all().map(|setup| {
        let config = EngineConfig {
            cache_dir: Some(folder.to_owned()),
            cache_save_every: Duration::from_secs(3600),
            ..setup.config.clone()
        };
        Setup { config, ..setup }
    })
}

/// The one cache file in a folder.
fn cache_file(folder: &Path) -> Option<std::path::PathBuf> {
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|kind| kind == "cache"))
}

/// Stops an engine as the end of its process would: what it held is free.
async fn end(engine: Engine, folder: &Path) {
    engine.shutdown().await;
    let lock = fs::File::open(folder.join("bantam.lock")).unwrap();
    let freed = async {
        while lock.try_lock().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), freed).await.expect("the lock is free in time");
}

/// Lets a conversation have some turns; all its tokens.
async fn converse(engine: &Engine, seed: u32, turns: u32) -> Vec<u32> {
    let mut tokens = prompt(seed, 30, 20);
    for turn in 0..turns {
        expect_exact(submit(engine, &tokens, 9).await, &tokens, 9).await;
        tokens.extend(expected(&tokens, 9));
        tokens.extend([turn, seed % 40, 7]);
    }
    tokens
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_go_on_after_a_restart() {
    for layout in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let setup = &keeping(folder.path())[layout];
        let engine = setup.start().await;
        let mut conversations = Vec::new();
        for seed in 0..4 {
            conversations.push(converse(&engine, seed, 3).await);
        }
        end(engine, folder.path()).await;
        let engine = setup.start().await;
        for conversation in &conversations {
            // All but the turn's own three tokens and the last one drawn, which was never computed.
            let cached = expect_exact(submit(&engine, conversation, 9).await, conversation, 9).await;
            assert_eq!(cached, conversation.len() - 4);
        }
        engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_is_saved_while_requests_run_and_are_displaced() {
    for layout in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let [paged, hybrid] = keeping(folder.path());
        let setup = if layout == 0 { paged } else { hybrid };
        let config = EngineConfig { cache_save_every: Duration::from_millis(3), ..setup.config.clone() };
        let setup = Setup { config, budget: 4 * 220, slots: 6, ..setup };
        let engine = setup.start().await;
        for round in 0..12 {
            let prompts: Vec<_> = (0..5).map(|i| prompt(i * 3 + round % 4, 40, 20 + i as usize)).collect();
            let mut running = Vec::new();
            for p in &prompts {
                running.push(submit(&engine, p, 30).await);
            }
            for (generation, p) in running.into_iter().zip(&prompts) {
                expect_exact(generation, p, 30).await;
            }
            if round % 3 != 2 {
                continue;
            }
            // What was saved in the middle of this is right, whatever it is.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let copy = tempfile::tempdir().unwrap();
            let Some(file) = cache_file(folder.path()) else { continue };
            fs::copy(&file, copy.path().join(file.file_name().unwrap())).unwrap();
            let config = EngineConfig { cache_dir: Some(copy.path().to_owned()), ..setup.config.clone() };
            let later = Setup { config, layout: setup.layout, budget: 1 << 20, slots: 40, gate: setup.gate.clone() };
            let later = later.start().await;
            let mut cached = 0;
            for p in &prompts {
                cached += expect_exact(submit(&later, p, 30).await, p, 30).await;
            }
            assert!(cached > 40, "something was restored: {cached}");
            later.stop().await;
        }
        engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_smaller_engine_takes_what_was_used_last() {
    for layout in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let [paged, hybrid] = keeping(folder.path());
        let setup = if layout == 0 { paged } else { hybrid };
        let engine = setup.start().await;
        let mut conversations = Vec::new();
        for seed in 0..8 {
            let p = prompt(seed, 0, 120);
            collect(submit(&engine, &p, 5).await).await;
            conversations.push(p);
        }
        end(engine, folder.path()).await;
        let small = Setup { budget: 4 * 200, slots: 4, ..setup };
        let engine = small.start().await;
        let last = &conversations[7];
        // A prompt that comes again has its last token computed anew, and cannot end before it where values hang.
        let mut longer = last.clone();
        longer.extend(expected(last, 5));
        assert_eq!(expect_exact(submit(&engine, &longer, 3).await, &longer, 3).await, last.len() + 4);
        engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_skipped_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let [_, setup] = keeping(folder.path());
    let engine = setup.start().await;
    let conversation = converse(&engine, 1, 2).await;
    end(engine, folder.path()).await;
    let file = cache_file(folder.path()).unwrap();
    let whole = fs::read(&file).unwrap();
    for (at, len) in [
        (0, whole.len()),
        (9, whole.len()),
        (20, whole.len()),
        (60, whole.len()),
        (whole.len() - 1, whole.len()),
        (0, 0),
        (0, 47),
        (0, whole.len() / 2),
        (0, whole.len() - 1),
    ] {
        let mut bytes = whole.clone();
        bytes.truncate(len);
        if len == whole.len() {
            bytes[at] ^= 4;
        }
        fs::write(&file, &bytes).unwrap();
        let engine = setup.start().await;
        let cached = expect_exact(submit(&engine, &conversation, 3).await, &conversation, 3).await;
        assert_eq!(cached, 0, "byte {at} of {len}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "it is left where it is");
        end(engine, folder.path()).await;
        let engine = setup.start().await;
        let mut longer = conversation.clone();
        longer.extend(expected(&conversation, 3));
        assert_eq!(expect_exact(submit(&engine, &longer, 3).await, &longer, 3).await, longer.len() - 1);
        end(engine, folder.path()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_model_with_other_state_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let [paged, hybrid] = keeping(folder.path());
    let engine = paged.start().await;
    let conversation = converse(&engine, 1, 2).await;
    end(engine, folder.path()).await;
    // The keys of the fake models are equal, as those of a forged file would be.
    let engine = hybrid.start().await;
    assert_eq!(expect_exact(submit(&engine, &conversation, 3).await, &conversation, 3).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_cannot_write_serves_on() {
    let folder = tempfile::tempdir().unwrap();
    let [setup, _] = keeping(folder.path());
    let config = EngineConfig { cache_save_every: Duration::from_millis(2), ..setup.config.clone() };
    let setup = Setup { config, ..setup };
    let engine = setup.start().await;
    drop(folder);
    let p = prompt(1, 0, 30);
    expect_exact(submit(&engine, &p, 60).await, &p, 60).await;
    until(&engine, "idle", |s| s.queued == 0).await;
    engine.shutdown().await;
}
