//! Recurrences: against plain loops over whole sequences, however they are cut into steps, with tentative rows that are taken
//! in or forgotten, and with states that several sequences go on from.

use std::sync::Arc;

use bantam_cuda::{
    Buffer, Device,
    recurrent::{Conv, Delta, DeltaRule, Recurrence, Scan, ShortConv, SlotLayout, Ssm},
    state::NONE,
};
use proptest::prelude::*;

use crate::bench::{Rows, Run, bits, device, distance, noise, rows_of};

/// Most tentative rows of a step.
const TENTATIVE: usize = 4;

/// A sequence's part of a step: where it begins, its rows, its slots, and how it goes on.
#[derive(Clone, Copy, Debug)]
struct Part {
    run: Run,
    from: u32,
    to: u32,
    accepted: usize,
    tentative: usize,
}

/// Which op, with its widths: of each operand the entries of a row, and which of them are kept.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Delta { key_heads: u32, heads: u32, key_dim: u32, value_dim: u32, per_channel: bool },
    Scan { heads: u32, dim: u32, groups: u32, size: u32, skips: bool },
    Conv { width: u32, taps: u32, dilation: u32, biased: bool },
}

impl Kind {
    /// Entries of a row of each operand.
    fn widths(self) -> Vec<usize> {
        let all: Vec<u32> = match self {
            Kind::Delta { key_heads, heads, key_dim, value_dim, per_channel } => vec![
                key_heads * key_dim,
                key_heads * key_dim,
                heads * value_dim,
                if per_channel { heads * key_dim } else { heads },
                heads,
            ],
            Kind::Scan { heads, dim, groups, size, .. } => vec![heads * dim, groups * size, groups * size, heads],
            Kind::Conv { width, .. } => vec![width],
        };
        all.into_iter().map(|width| width as usize).collect()
    }

    fn out_width(self) -> usize {
        (match self {
            Kind::Delta { heads, value_dim, .. } => heads * value_dim,
            Kind::Scan { heads, dim, .. } => heads * dim,
            Kind::Conv { width, .. } => width,
        }) as usize
    }

    fn weights(self) -> Vec<Vec<f32>> {
        match self {
            Kind::Delta { .. } => Vec::new(),
            Kind::Scan { heads, .. } => {
                let a = noise(heads as usize, 90).into_iter().map(|x| -1.0 - x).collect();
                vec![a, noise(heads as usize, 91)]
            }
            Kind::Conv { width, taps, .. } => vec![noise((width * taps) as usize, 92), noise(width as usize, 93)],
        }
    }

    /// Operands of `tokens` tokens of a sequence.
    fn operands(self, tokens: usize, seed: u64) -> Vec<Vec<f32>> {
        let of = |(i, width): (usize, usize)| noise(tokens * width, seed * 10 + i as u64);
        let mut all: Vec<Vec<f32>> = self.widths().into_iter().enumerate().map(of).collect();
        match self {
            Kind::Delta { key_dim, .. } => {
                for key in all[1].chunks_mut(key_dim as usize) {
                    let length = key.iter().map(|x| x * x).sum::<f32>().sqrt();
                    key.iter_mut().for_each(|x| *x /= length);
                }
                all[3].iter_mut().for_each(|decay| *decay -= 1.0);
                all[4].iter_mut().for_each(|beta| *beta = 0.5 + 0.5 * *beta);
            }
            Kind::Scan { .. } => all[3].iter_mut().for_each(|dt| *dt = 0.6 + 0.5 * *dt),
            Kind::Conv { .. } => {}
        }
        all
    }

    /// Floats of the value, and of what is kept of a row.
    fn sizes(self) -> [usize; 2] {
        match self {
            Kind::Delta { .. } => self.delta(&[0; 5], 0).sizes(),
            Kind::Scan { .. } => self.scan(&[0; 4], [0, 0], 0).sizes(),
            Kind::Conv { .. } => self.conv(0, [0, 0], 0).sizes(),
        }
    }

    fn delta(self, x: &[u64; 5], out: u64) -> Delta {
        let Kind::Delta { key_heads, heads, key_dim, value_dim, per_channel } = self else { panic!("{self:?}") };
        let [q, k, v, decay, beta] = *x;
        let per_channel = u32::from(per_channel);
        Delta { q, k, v, decay, beta, out, key_heads, heads, key_dim, value_dim, per_channel, scale: 0.7 }
    }

    fn scan(self, x: &[u64; 4], [a, d]: [u64; 2], out: u64) -> Scan {
        let Kind::Scan { heads, dim, groups, size, skips } = self else { panic!("{self:?}") };
        let [x, b, c, dt] = *x;
        Scan { x, b, c, dt, a, d: if skips { d } else { 0 }, out, heads, dim, groups, size }
    }

    fn conv(self, x: u64, [weight, bias]: [u64; 2], out: u64) -> Conv {
        let Kind::Conv { width, taps, dilation, biased } = self else { panic!("{self:?}") };
        Conv { x, weight, bias: if biased { bias } else { 0 }, out, width, taps, dilation }
    }

    /// What plain loops give for a sequence.
    fn wanted(self, x: &[Vec<f32>]) -> Vec<f64> {
        let widths = self.widths();
        let tokens = x[0].len() / widths[0];
        let row = |i: usize, t: usize| -> Vec<f64> {
            x[i][t * widths[i]..(t + 1) * widths[i]].iter().map(|x| f64::from(*x)).collect()
        };
        let weights: Vec<Vec<f64>> =
            self.weights().into_iter().map(|w| w.into_iter().map(f64::from).collect()).collect();
        let mut out = Vec::new();
        match self {
            Kind::Delta { key_heads, heads, key_dim, value_dim, per_channel } => {
                let [key_heads, heads, key_dim, value_dim] = [key_heads, heads, key_dim, value_dim].map(|n| n as usize);
                let mut states = vec![vec![vec![0.0; value_dim]; key_dim]; heads];
                for t in 0..tokens {
                    let [q, k, v, decay, beta] = [0, 1, 2, 3, 4].map(|i| row(i, t));
                    for (h, state) in states.iter_mut().enumerate() {
                        let part = h % key_heads * key_dim..(h % key_heads + 1) * key_dim;
                        let (q, k) = (&q[part.clone()], &k[part]);
                        for (c, entries) in state.iter_mut().enumerate() {
                            let decay = if per_channel { decay[h * key_dim + c] } else { decay[h] };
                            entries.iter_mut().for_each(|s| *s *= decay.exp());
                        }
                        for j in 0..value_dim {
                            let found: f64 = (0..key_dim).map(|c| state[c][j] * k[c]).sum();
                            let delta = beta[h] * (v[h * value_dim + j] - found);
                            (0..key_dim).for_each(|c| state[c][j] += k[c] * delta);
                            out.push(f64::from(0.7f32) * (0..key_dim).map(|c| state[c][j] * q[c]).sum::<f64>());
                        }
                    }
                }
            }
            Kind::Scan { heads, dim, groups, size, skips } => {
                let [heads, dim, groups, size] = [heads, dim, groups, size].map(|n| n as usize);
                let mut states = vec![vec![vec![0.0; size]; dim]; heads];
                for t in 0..tokens {
                    let [x, b, c, dt] = [0, 1, 2, 3].map(|i| row(i, t));
                    for (h, state) in states.iter_mut().enumerate() {
                        let group = h / (heads / groups) * size;
                        for (i, entries) in state.iter_mut().enumerate() {
                            let x = x[h * dim + i];
                            let mut y = if skips { weights[1][h] * x } else { 0.0 };
                            for (j, s) in entries.iter_mut().enumerate() {
                                *s = (dt[h] * weights[0][h]).exp() * *s + dt[h] * x * b[group + j];
                                y += *s * c[group + j];
                            }
                            out.push(y);
                        }
                    }
                }
            }
            Kind::Conv { width, taps, dilation, biased } => {
                let [width, taps, dilation] = [width, taps, dilation].map(|n| n as usize);
                for t in 0..tokens {
                    for c in 0..width {
                        let at = |tap: usize| t.checked_sub((taps - 1 - tap) * dilation).map_or(0.0, |t| row(0, t)[c]);
                        let bias = if biased { weights[1][c] } else { 0.0 };
                        out.push(bias + (0..taps).map(|tap| weights[0][c * taps + tap] * at(tap)).sum::<f64>());
                    }
                }
            }
        }
        out
    }
}

/// A recurrent state with another beside it in each slot, and which bank of each slot is in use.
struct Slots {
    device: Arc<dyn Device>,
    kind: Kind,
    layout: SlotLayout,
    slots: Buffer,
    banks: Vec<u32>,
}

impl Slots {
    fn new(device: &Arc<dyn Device>, kind: Kind, count: usize) -> Self {
        let layout = SlotLayout::new(&[[5, 3], kind.sizes()], TENTATIVE).unwrap();
        let slots = Buffer::new(device, count * layout.slot_floats * 4, "slots").unwrap();
        Slots { device: Arc::clone(device), kind, layout, slots, banks: vec![0; count] }
    }

    /// Runs a step; `operands` are those of all tokens of each sequence.
    fn step(&mut self, parts: &[Part], operands: &[Vec<Vec<f32>>]) -> Vec<f32> {
        let device = &self.device;
        let runs: Vec<Run> = parts.iter().map(|part| part.run).collect();
        let rows = Rows::tokens(device, &runs);
        let integers = |of: &dyn Fn(&Part) -> u32| {
            Buffer::of_u32(device, &parts.iter().map(of).collect::<Vec<_>>(), "parts").unwrap()
        };
        let bank = |slot: u32| self.banks.get(slot as usize).copied().unwrap_or(0);
        let arrays = [
            integers(&|part| part.from),
            integers(&|part| part.to),
            integers(&|part| part.accepted as u32),
            integers(&|part| part.tentative as u32),
            integers(&|part| bank(part.from)),
            integers(&|part| 1 - bank(part.to)),
        ];
        let [from, to, accepted, tentative, from_bank, to_bank] = arrays.each_ref().map(Buffer::address);
        let [value, kept] = self.layout.places[1];
        let slots = Recurrence {
            slots: self.slots.address(),
            slot_floats: self.layout.slot_floats as u64,
            from,
            to,
            accepted,
            tentative,
            from_bank,
            to_bank,
            value: value as u64,
            kept: kept as u64,
            inputs: self.kind.sizes()[1] as u32,
            bank_rows: TENTATIVE as u32,
        };
        let there = |x: &[f32]| Buffer::of_f32(device, x, "operand").unwrap();
        let x: Vec<Buffer> = (0..self.kind.widths().len())
            .map(|i| {
                let all: Vec<Vec<f32>> = operands.iter().map(|of| of[i].clone()).collect();
                there(&rows_of(&all, self.kind.widths()[i], &runs))
            })
            .collect();
        let weights: Vec<Buffer> = self.kind.weights().iter().map(|w| there(w)).collect();
        let out = Buffer::new(device, rows.len() * self.kind.out_width() * 4, "out").unwrap();
        let at: Vec<u64> = x.iter().map(Buffer::address).collect();
        let of_weight = |i: usize| weights[i].address();
        match self.kind {
            Kind::Delta { key_dim, .. } => DeltaRule::new(&**device, key_dim).unwrap().run(
                &**device,
                &self.kind.delta(&at.try_into().unwrap(), out.address()),
                &rows.step,
                &slots,
            ),
            Kind::Scan { size, .. } => {
                let of = self.kind.scan(&at.try_into().unwrap(), [of_weight(0), of_weight(1)], out.address());
                Ssm::new(&**device, size).unwrap().run(&**device, &of, &rows.step, &slots)
            }
            Kind::Conv { .. } => {
                let of = self.kind.conv(at[0], [of_weight(0), of_weight(1)], out.address());
                let most = runs.iter().map(|(_, rows)| *rows as u32).max().unwrap();
                ShortConv::new(&**device).unwrap().run(&**device, &of, &rows.step, &slots, most)
            }
        }
        .unwrap();
        for part in parts.iter().filter(|part| part.to != NONE) {
            self.banks[part.to as usize] = 1 - self.banks[part.to as usize];
        }
        out.read_f32().unwrap()
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![
        Kind::Delta { key_heads: 2, heads: 4, key_dim: 11, value_dim: 5, per_channel: false },
        Kind::Delta { key_heads: 1, heads: 2, key_dim: 64, value_dim: 40, per_channel: true },
        Kind::Scan { heads: 4, dim: 5, groups: 2, size: 12, skips: true },
        Kind::Scan { heads: 2, dim: 36, groups: 1, size: 64, skips: false },
        Kind::Conv { width: 37, taps: 4, dilation: 1, biased: true },
        Kind::Conv { width: 140, taps: 3, dilation: 3, biased: false },
        Kind::Conv { width: 9, taps: 2, dilation: 1, biased: false },
    ])
}

/// How a step goes: rows, how many of them are tentative, and how many of these are accepted then.
type Cut = (usize, usize, usize);

proptest! {
    #![proptest_config(ProptestConfig { cases: 14, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn steps_go_on_where_others_left(
        kind in kinds(),
        cuts in prop::collection::vec((1usize..12, 0usize..=TENTATIVE, 0usize..=TENTATIVE), 1..7),
        moves in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let device = device();
        let cuts: Vec<Cut> =
            cuts.into_iter().map(|(rows, t, a)| (rows, t.min(rows), a.min(t.min(rows)))).collect();
        let tokens: usize = cuts.iter().map(|(rows, _, _)| *rows).sum();
        let operands = [kind.operands(tokens, seed), kind.operands(tokens, seed + 1)];
        let wanted = operands.each_ref().map(|x| kind.wanted(x));
        let width = kind.out_width();
        // Sequence 0 goes by these steps; sequence 1 token by token beside it, in place.
        let mut slots = Slots::new(&device, kind, 4);
        let (mut at, mut accepted, mut slot, mut other) = (0, 0, NONE, 0);
        let mut found = [Vec::new(), Vec::new()];
        for (i, (rows, tentative, then)) in cuts.iter().copied().enumerate() {
            let to = if moves || slot == NONE { i as u32 % 2 } else { slot };
            let first = Part { run: (at, rows), from: slot, to, accepted, tentative };
            let from = if other == 0 { NONE } else { 3 };
            let second = Part { run: (other, 1), from, to: 3, accepted: 0, tentative: 0 };
            let y = slots.step(&[first, second], &operands);
            for (row, y) in y[..rows * width].chunks(width).enumerate() {
                let far = distance(y, &wanted[0][(at + row) * width..][..width]);
                prop_assert!(far < 1e-3, "{:?}, token {}: {}", kind, at + row, far);
                found[0].resize((at + row) * width, 0.0);
                found[0].extend_from_slice(y);
            }
            found[1].extend_from_slice(&y[rows * width..]);
            (at, accepted, slot, other) = (at + rows - tentative + then, then, to, other + 1);
        }
        let whole = |s: usize, tokens: usize| {
            let mut slots = Slots::new(&device, kind, 1);
            let run = [(0, 0), (0, 0)];
            let part = |i: usize| {
                let run = if i == s { (0, tokens) } else { run[i] };
                Part { run, from: NONE, to: if i == s { 0 } else { NONE }, accepted: 0, tentative: 0 }
            };
            slots.step(&[part(0), part(1)], &operands)
        };
        for (s, found) in found.iter().enumerate() {
            prop_assert_eq!(bits(found), bits(&whole(s, found.len() / width)), "{:?}: sequence {} at once", kind, s);
        }
    }

    #[test]
    fn several_sequences_go_on_from_one_state(kind in kinds(), seed in 0u64..1000) {
        let device = device();
        let operands = kind.operands(12, seed);
        let both = [operands.clone(), operands.clone()];
        let mut slots = Slots::new(&device, kind, 3);
        let part = |run: Run, from: u32, to: u32, accepted: usize, tentative: usize| Part { run, from, to, accepted, tentative };
        slots.step(&[part((0, 7), NONE, 0, 0, 3)], &both[..1]);
        // One takes two of the three kept rows in, the other none; a third only takes rows in.
        let y = slots.step(&[part((6, 6), 0, 1, 2, 0), part((4, 8), 0, 2, 0, 0)], &both);
        let again = slots.step(&[part((5, 0), 0, 1, 1, 0)], &both[..1]);
        prop_assert!(again.is_empty());
        let z = slots.step(&[part((5, 7), 1, 2, 0, 0)], &both[..1]);
        let width = kind.out_width();
        let wanted = kind.wanted(&operands);
        prop_assert!(distance(&y[..6 * width], &wanted[6 * width..]) < 1e-3);
        prop_assert_eq!(bits(&y[..6 * width]), bits(&y[8 * width..]));
        prop_assert_eq!(bits(&z[width..]), bits(&y[8 * width..]));
    }
}
