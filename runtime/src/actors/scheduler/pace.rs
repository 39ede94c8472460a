//! How many prompt rows a step takes while sequences decode. Pure: it is told what steps took.
//!
//! Decoding sequences wait for the whole step, so the time of prompt rows is the pause between two of their tokens. The
//! pace gives prompts a share of the time, as credit that grows while sequences decode and that prompt rows use up. With a
//! share of a half, and prompts waiting, a step takes twice as long as it would without them. Credit that nobody used is
//! kept up to a limit: a short prompt is computed at twice that pace, a long one is spread.

use std::time::Duration;

/// Most credit, in seconds: what a prompt gets beyond its share after a pause.
const MOST_CREDIT: f64 = 1.0;

/// Most of it that one step uses, in what a step earns: the pause between two tokens stays bounded while credit lasts.
const EARNINGS_AT_ONCE: f64 = 2.0;

/// Part of a step's rows that prompts take while it is not known what they cost.
const UNKNOWN_PART: usize = 4;

/// Part of what was believed that a new measurement replaces.
const NEWS: f64 = 0.25;

/// Steps with prompt rows after which one is left without, to measure what decoding alone takes.
const MEASURE_EVERY: usize = 64;

/// What decoding alone takes.
#[derive(Clone, Copy, Debug)]
struct Decode {
    seconds: f64,
    sequences: usize,
}

/// Rations prompt rows.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Seconds of prompt rows for each second of decoding.
    ratio: f64,
    /// Fewest prompt rows worth a step, unless fewer are left.
    fewest: usize,
    decode: Option<Decode>,
    /// Seconds that a prompt row adds to a step.
    row: Option<f64>,
    credit: f64,
    since_measured: usize,
}

impl Pace {
    /// A pace that leaves prompts `share` of the time, in percent below 100, in portions of at least `fewest` rows.
    pub(crate) fn new(share: usize, fewest: usize) -> Self {
        let share = share.min(99) as f64 / 100.0;
        Pace { ratio: share / (1.0 - share), fewest, decode: None, row: None, credit: MOST_CREDIT, since_measured: 0 }
    }

    /// Prompt rows for the next step, at most `most`, in which `decoding` sequences decode and `pending` prompt rows wait.
    pub(crate) fn rows(&self, decoding: usize, pending: usize, most: usize) -> usize {
        let wanted = pending.min(most);
        if decoding == 0 {
            return wanted;
        }
        let Some(row) = self.row else { return wanted.min((most / UNKNOWN_PART).max(1)) };
        if self.since_measured >= MEASURE_EVERY {
            return 0;
        }
        let least = self.fewest.min(wanted);
        let at_once = self.alone(decoding).map_or(self.credit, |alone| EARNINGS_AT_ONCE * alone * self.ratio);
        let affordable = (self.credit.min(at_once) / row) as usize;
        match affordable >= least || self.credit >= least as f64 * row {
            true => affordable.max(least).min(wanted),
            false => 0,
        }
    }

    /// Learns from a step of `decoding` sequences and `prompt` prompt rows.
    pub(crate) fn learn(&mut self, decoding: usize, prompt: usize, elapsed: Duration) {
        let elapsed = elapsed.as_secs_f64();
        let alone = self.alone(decoding).map_or(elapsed, |alone| alone.min(elapsed));
        match (decoding, prompt) {
            (0, 0) => {}
            (0, rows) => {
                // The weights are read whatever the rows are: a few rows tell little of what one more costs.
                self.believe_row(elapsed / rows as f64, NEWS * (rows as f64 / 64.0).min(1.0));
                self.credit = self.most_credit();
                self.since_measured = 0;
            }
            (_, 0) => {
                let before = self.alone(decoding).unwrap_or(elapsed);
                let seconds = before + NEWS * (elapsed - before);
                self.decode = Some(Decode { seconds, sequences: decoding });
                self.credit = (self.credit + elapsed * self.ratio).min(self.most_credit());
                self.since_measured = 0;
            }
            (_, rows) => {
                if self.decode.is_some() {
                    self.believe_row((elapsed - alone) / rows as f64, NEWS);
                }
                let earned = self.credit + alone * self.ratio;
                self.credit = (earned - (elapsed - alone)).clamp(-self.most_credit(), self.most_credit());
                self.since_measured += 1;
            }
        }
    }

    /// What a step in which so many sequences decode would take without prompt rows.
    fn alone(&self, decoding: usize) -> Option<f64> {
        if decoding == 0 {
            return Some(0.0);
        }
        let Decode { seconds, sequences } = self.decode?;
        // A decoded row more costs about what a prompt row does.
        let more = (decoding as f64 - sequences as f64) * self.row.unwrap_or(0.0);
        Some((seconds + more).max(seconds / sequences as f64))
    }

    fn believe_row(&mut self, seconds: f64, news: f64) {
        // Never nothing: rows would seem to be free for ever.
        let seconds = seconds.max(1e-7);
        let before = self.row.unwrap_or(seconds);
        self.row = Some(before + news * (seconds - before));
    }

    /// Enough for the fewest rows worth a step, and for what a step earns.
    fn most_credit(&self) -> f64 {
        let earned = self.decode.map_or(0.0, |decode| decode.seconds * self.ratio);
        MOST_CREDIT.max(2.0 * earned).max(self.fewest as f64 * self.row.unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A machine on which steps take what they are said to.
    struct Machine {
        fixed: f64,
        decode_row: f64,
        prompt_row: f64,
    }

    impl Machine {
        fn step(&self, decoding: usize, prompt: usize) -> Duration {
            let fixed = if decoding + prompt > 0 { self.fixed } else { 0.0 };
            Duration::from_secs_f64(fixed + self.decode_row * decoding as f64 + self.prompt_row * prompt as f64)
        }
    }

    /// Runs a long prompt beside `decoding` sequences: the longest steps in their order, and the time of prompt rows as a
    /// part of all.
    fn paste(machine: &Machine, pace: &mut Pace, decoding: usize, prompt: usize) -> (Vec<f64>, f64) {
        (0..50).for_each(|_| pace.learn(decoding, 0, machine.step(decoding, 0)));
        let (mut left, mut steps, mut in_prompt) = (prompt, Vec::new(), 0.0);
        while left > 0 {
            let rows = pace.rows(decoding, left, 500);
            let took = machine.step(decoding, rows);
            pace.learn(decoding, rows, took);
            left -= rows;
            in_prompt += rows as f64 * machine.prompt_row;
            steps.push(took.as_secs_f64());
            assert!(steps.len() < 1_000_000, "{pace:?}");
        }
        let all: f64 = steps.iter().sum();
        steps.sort_by(f64::total_cmp);
        (steps, in_prompt / all)
    }

    #[test]
    fn a_lone_prompt_gets_the_whole_step() {
        assert_eq!(Pace::new(50, 8).rows(0, 10_000, 512), 512);
    }

    #[test]
    fn a_short_prompt_is_computed_at_twice_the_pace() {
        let machine = Machine { fixed: 0.005, decode_row: 0.0005, prompt_row: 0.0005 };
        let mut pace = Pace::new(50, 8);
        pace.learn(0, 512, machine.step(0, 512));
        (0..50).for_each(|_| pace.learn(3, 0, machine.step(3, 0)));
        // A step of decoding alone takes as long as 13 prompt rows.
        for _ in 0..4 {
            let rows = pace.rows(3, 130, 500);
            assert!((25..=26).contains(&rows), "{rows}");
            pace.learn(3, rows, machine.step(3, rows));
        }
    }

    proptest! {
        #[test]
        fn decoding_takes_twice_as_long_beside_a_long_prompt_and_the_prompt_gets_its_share(
            fixed in 0.001..0.2_f64, row in 0.01..0.25_f64, decoding in 1..9_usize, share in 10..80_usize,
        ) {
            // As machines are: a row adds less than what reading the weights takes.
            let row = fixed * row;
            let machine = Machine { fixed, decode_row: row, prompt_row: row };
            let mut pace = Pace::new(share, 1);
            pace.learn(0, 512, machine.step(0, 512));
            // Long in time too: on a fast machine so many rows would cost no more than the credit from before.
            let long = 60_000.max((8.0 * MOST_CREDIT / row) as usize);
            let (steps, part) = paste(&machine, &mut pace, decoding, long);
            let alone = machine.step(decoding, 0).as_secs_f64();
            let share = share as f64 / 100.0;
            let median = steps[steps.len() / 2];
            prop_assert!(median <= alone / (1.0 - share) * 1.1 + row, "{median} beside {alone}");
            // One row too few in each step is what rounding may cost.
            prop_assert!(part >= share - 0.05 - row / alone, "{part} of {share}");
        }

        #[test]
        fn whole_portions_come_seldom_and_the_share_is_kept(fixed in 0.01..0.1_f64, decoding in 1..9_usize) {
            let machine = Machine { fixed, decode_row: fixed / 10.0, prompt_row: fixed / 50.0 };
            let mut pace = Pace::new(50, 256);
            pace.learn(0, 512, machine.step(0, 512));
            let (steps, part) = paste(&machine, &mut pace, decoding, 40_000);
            let alone = machine.step(decoding, 0).as_secs_f64();
            let undisturbed = steps.iter().filter(|step| **step < alone * 1.01).count();
            prop_assert!(undisturbed * 2 > steps.len(), "{undisturbed} of {}", steps.len());
            prop_assert!(part >= 0.45, "{part}");
        }
    }
}
