//! Measures what the worker team costs: a barrier, and a job from start to end.

use std::time::{Duration, Instant};

use bantam_cpu::Team;

const BARRIERS: u32 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads = std::env::args().nth(1).map_or(Ok(0), |n| n.parse())?;
    let team = Team::new(threads)?;
    let barriers = best(|| {
        team.run(|member| {
            for _ in 0..BARRIERS {
                member.barrier()?;
            }
            Ok(())
        })
    })?;
    let job = best(|| team.run(|_| Ok(())))?;
    println!("{} threads: {:?} a barrier, {job:?} a job", team.threads(), barriers / BARRIERS);
    Ok(())
}

/// The best time of many: what the code takes when nothing else wants the cores.
fn best<E>(mut run: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    let mut best = Duration::MAX;
    for _ in 0..2000 {
        let begin = Instant::now();
        run()?;
        best = best.min(begin.elapsed());
    }
    Ok(best)
}
