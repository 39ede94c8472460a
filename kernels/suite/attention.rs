//! Attention with all that it can look at.

use bantam_backend::KvType;
use bantam_graph::{Attention, BlockSelection, CompressedKeys, Mask, Pool, State, StateKind, StateType, TopKeys};

use crate::{
    bench::{Bench, Seen, Sketch},
    turbo,
};

type Rows = Vec<Vec<f64>>;

const DIM: usize = 24;

fn state(s: &mut Sketch, name: &str, heads: usize, dim: usize, kind: StateKind) -> String {
    s.graph.state(State { name: name.into(), heads, dim, kind, dtype: StateType::Kv, alias: None })
}

/// One row for each block of `stride` tokens, stored: `name_rows`.
fn pooled(s: &mut Sketch, name: &str, (width, dtype): (usize, StateType), stride: usize) -> String {
    let x = s.floats(&format!("{name}_x"), width);
    let open = State {
        name: format!("{name}_open"),
        heads: 1,
        dim: width,
        kind: StateKind::Window { len: stride },
        dtype: StateType::F32,
        alias: None,
    };
    let open = s.graph.state(open);
    let rows =
        s.graph.pool(&format!("{name}_rows"), Pool { x, gate: None, bias: None, state: open, stride, overlap: false });
    let kind = StateKind::Strided { stride };
    let kept = s.graph.state(State { name: name.into(), heads: 1, dim: width, kind, dtype, alias: None });
    s.graph.store(&format!("{name}_store"), &rows, &kept);
    kept
}

/// The softmax over scores, of which the last may have no value.
fn mixed(scores: &[f64], values: &[&[f64]], dim: usize) -> Vec<f64> {
    let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - greatest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let entry = |d: usize| weights.iter().zip(values).map(|(w, v)| w * v[d]).sum::<f64>() / total;
    (0..dim).map(entry).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// What a naive attention is told: who sees which tokens, and which further rows.
struct Twin<'a> {
    heads: usize,
    kv_heads: usize,
    value_dim: usize,
    scale: f64,
    sinks: Option<Vec<f64>>,
    keys: Rows,
    /// None: the first entries of the keys.
    values: Option<Rows>,
    further: Rows,
    sees: &'a dyn Fn(usize, usize) -> bool,
    sees_further: &'a dyn Fn(usize, usize) -> bool,
}

impl Twin<'_> {
    fn attend(&self, q: &[Vec<f64>]) -> Rows {
        let head = |p: usize, h: usize| {
            let kv = h / (self.heads / self.kv_heads);
            let query = &q[p][h * DIM..][..DIM];
            let part = |row: &'_ [f64], dim: usize| row[kv * dim..][..dim].to_vec();
            let mut seen: Vec<(Vec<f64>, Vec<f64>)> = Vec::new();
            for t in (0..self.keys.len()).filter(|t| (self.sees)(p, *t)) {
                let key = part(&self.keys[t], DIM);
                let value = self.values.as_ref().map_or(key.clone(), |v| part(&v[t], self.value_dim));
                seen.push((key, value));
            }
            for w in (0..self.further.len()).filter(|w| (self.sees_further)(p, *w)) {
                let key = part(&self.further[w], DIM);
                seen.push((key.clone(), key));
            }
            let mut scores: Vec<f64> = seen.iter().map(|(k, _)| self.scale * dot(query, k)).collect();
            scores.extend(self.sinks.as_ref().map(|sinks| sinks[h]));
            if seen.is_empty() {
                return vec![0.0; self.value_dim];
            }
            mixed(&scores, &seen.iter().map(|(_, v)| v.as_slice()).collect::<Vec<_>>(), self.value_dim)
        };
        (0..q.len()).map(|p| (0..self.heads).flat_map(|h| head(p, h)).collect()).collect()
    }
}

/// Rows, of heads of `dim` entries, as a cache of floats, halves or codes holds them.
fn stored(rows: Rows, dim: usize, kv: KvType) -> Rows {
    let round = |head: &[f64]| match kv {
        KvType::F32 => head.to_vec(),
        KvType::F16 => head.iter().map(|x| f64::from(half::f16::from_f64(*x).to_f32())).collect(),
        _ => turbo::rounded(head, kv),
    };
    rows.into_iter().map(|row| row.chunks(dim).flat_map(round).collect()).collect()
}

fn in_window(window: Option<usize>, p: usize, t: usize) -> bool {
    t <= p && window.is_none_or(|w| t + w > p)
}

#[test]
fn sinks_take_their_share() {
    for (heads, kv_heads, window, kv) in [
        (6, 2, None, KvType::F32),
        (4, 4, Some(40), KvType::F32),
        (40, 1, None, KvType::F32),
        (6, 2, Some(40), KvType::Turbo4),
        (40, 1, None, KvType::Turbo3),
    ] {
        let bench = Bench::new(|s| {
            let kind = window.map_or(StateKind::PerToken, |len| StateKind::Window { len });
            let (k_state, v_state) = (state(s, "k", kv_heads, DIM, kind), state(s, "v", kv_heads, 20, kind));
            let q = s.floats("q", heads * DIM);
            let (k, v) = (Some(s.floats("k", kv_heads * DIM)), Some(s.floats("v", kv_heads * 20)));
            let (v_state, sinks) = (Some(v_state), Some(s.graph.tensor("sinks", &[heads])));
            s.graph.attention(
                "y",
                Attention { q, k, v, k_state, v_state, heads, scale: 0.3, window, sinks, ..Attention::default() },
            )
        });
        bench.check_with(kv, 1e-5, |seen| {
            let twin = Twin {
                heads,
                kv_heads,
                value_dim: 20,
                scale: 0.3f32.into(),
                sinks: Some(seen.weight("sinks")),
                keys: stored(seen.rows("k"), DIM, kv),
                values: Some(stored(seen.rows("v"), 20, kv)),
                further: Vec::new(),
                sees: &|p, t| in_window(window, p, t),
                sees_further: &|_, _| false,
            };
            twin.attend(&seen.rows("q"))
        });
    }
}

#[test]
fn a_layer_reads_what_another_stored() {
    let bench = Bench::new(|s| {
        let (k_state, v_state) =
            (state(s, "k", 2, DIM, StateKind::PerToken), state(s, "v", 2, DIM, StateKind::PerToken));
        let (first, second) = (s.floats("first", 4 * DIM), s.floats("second", 6 * DIM));
        let (k, v) = (Some(s.floats("k", 2 * DIM)), Some(s.floats("v", 2 * DIM)));
        let own =
            Attention { q: first, k, v, k_state, v_state: Some(v_state), heads: 4, scale: 0.3, ..Attention::default() };
        let lent = Attention { q: second, k: None, v: None, heads: 6, window: Some(9), ..own.clone() };
        let first = s.graph.attention("own", own);
        let second = s.graph.attention("lent", lent);
        s.graph.concat("y", &[&first, &second], 1)
    });
    bench.check(1e-5, |seen| {
        let attend = |q: &str, heads: usize, window: Option<usize>| {
            let twin = Twin {
                heads,
                kv_heads: 2,
                value_dim: DIM,
                scale: 0.3f32.into(),
                sinks: None,
                keys: seen.rows("k"),
                values: Some(seen.rows("v")),
                further: Vec::new(),
                sees: &|p, t| in_window(window, p, t),
                sees_further: &|_, _| false,
            };
            twin.attend(&seen.rows(q))
        };
        let (first, second) = (attend("first", 4, None), attend("second", 6, Some(9)));
        first.into_iter().zip(second).map(|(a, b)| [a, b].concat()).collect()
    });
}

#[test]
fn values_lie_in_the_keys() {
    for (heads, kv_heads, value_dim, kv) in [
        (4, 2, None, KvType::F32),
        (36, 1, Some(17), KvType::F32),
        (5, 1, Some(16), KvType::F16),
        (4, 2, Some(17), KvType::Turbo4),
        (36, 1, None, KvType::Turbo3),
    ] {
        let bench = Bench::new(|s| {
            let k_state = state(s, "k", kv_heads, DIM, StateKind::PerToken);
            let (q, k) = (s.floats("q", heads * DIM), Some(s.floats("k", kv_heads * DIM)));
            s.graph.attention("y", Attention { q, k, k_state, value_dim, heads, scale: 0.3, ..Attention::default() })
        });
        bench.check_with(kv, 1e-5, |seen| {
            let twin = Twin {
                heads,
                kv_heads,
                value_dim: value_dim.unwrap_or(DIM),
                scale: 0.3f32.into(),
                sinks: None,
                keys: stored(seen.rows("k"), DIM, kv),
                values: None,
                further: Vec::new(),
                sees: &|p, t| t <= p,
                sees_further: &|_, _| false,
            };
            twin.attend(&seen.rows("q"))
        });
    }
}

/// Rows chosen for a token, as sets.
fn chosen(seen: &Seen<'_>, name: &str) -> Vec<Vec<usize>> {
    seen.rows(name).iter().map(|ids| ids.iter().filter(|id| **id < 1e9).map(|id| *id as usize).collect()).collect()
}

/// Chooses `count` rows of the pooled state `index`.
fn choice(s: &mut Sketch, stride: usize, count: usize) -> String {
    let k_state = pooled(s, "index", (16, StateType::Kv), stride);
    let (q, weights) = (s.floats("index_q", 3 * 16), Some(s.floats("index_w", 3)));
    s.graph.top_keys("chosen", TopKeys { q, weights, k_state, heads: 3, scale: 0.5, count })
}

/// The rows that [`choice`] must name, by plain sorting.
fn naive_choice(seen: &Seen<'_>, stride: usize, count: usize, p: usize) -> Vec<usize> {
    let (q, w, keys) = (seen.rows("index_q"), seen.rows("index_w"), seen.rows("index_rows"));
    let score = |row: usize| -> f64 {
        (0..3).map(|h| w[p][h] * dot(&q[p][h * 16..][..16], &keys[row]).max(0.0)).sum::<f64>() * 0.5
    };
    let mut rows: Vec<(usize, f64)> = (0..(p + 1) / stride).map(|row| (row, score(row))).collect();
    // No total order: that would tell −0 from 0.
    rows.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap());
    rows.truncate(count);
    let mut rows: Vec<usize> = rows.into_iter().map(|(row, _)| row).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn the_best_rows_are_chosen_and_only_their_blocks_seen() {
    for (stride, count, window) in [(4, 3, None), (16, 2, None), (40, 1, Some(100)), (3, 11, Some(30))] {
        let bench = Bench::new(|s| {
            let ids = choice(s, stride, count);
            let (k_state, v_state) =
                (state(s, "k", 2, DIM, StateKind::PerToken), state(s, "v", 2, DIM, StateKind::PerToken));
            let q = s.floats("q", 4 * DIM);
            let (k, v) = (Some(s.floats("k", 2 * DIM)), Some(s.floats("v", 2 * DIM)));
            let select = Some(BlockSelection { ids, block: stride });
            let v_state = Some(v_state);
            s.graph.attention(
                "y",
                Attention { q, k, v, k_state, v_state, heads: 4, scale: 0.3, window, select, ..Attention::default() },
            )
        });
        bench.check(1e-5, |seen| {
            let ids = chosen(seen, "chosen");
            let mut full = 0;
            for (p, ids) in ids.iter().enumerate() {
                assert_eq!(*ids, naive_choice(seen, stride, count, p), "row {p}");
                full += usize::from(ids.len() == count && (p + 1) / stride > count);
            }
            assert!(full > 20, "choices that leave something out");
            let twin = Twin {
                heads: 4,
                kv_heads: 2,
                value_dim: DIM,
                scale: 0.3f32.into(),
                sinks: None,
                keys: seen.rows("k"),
                values: Some(seen.rows("v")),
                further: Vec::new(),
                sees: &|p, t| {
                    in_window(window, p, t) && (t / stride >= (p + 1) / stride || ids[p].contains(&(t / stride)))
                },
                sees_further: &|_, _| false,
            };
            twin.attend(&seen.rows("q"))
        });
    }
}

#[test]
fn compressed_keys_meet_the_raw_ones_in_one_softmax() {
    for (stride, count, kv) in [
        (4, None, KvType::F32),
        (4, Some(7), KvType::F32),
        (3, Some(40), KvType::F16),
        (40, None, KvType::F16),
        (4, None, KvType::Turbo4),
        (3, Some(40), KvType::Turbo3),
    ] {
        // Compressed keys may be of another type than the raw ones.
        for own_type in [StateType::Kv, StateType::F32] {
            let further = if own_type == StateType::Kv { kv } else { KvType::F32 };
            let bench = Bench::new(|s| {
                let ids = count.map(|count| choice(s, stride, count));
                let compressed =
                    Some(CompressedKeys { state: pooled(s, "block", (DIM, own_type), stride), select: ids });
                let k_state = state(s, "k", 1, DIM, StateKind::Window { len: 20 });
                let (q, k) = (s.floats("q", 36 * DIM), Some(s.floats("k", DIM)));
                let (window, sinks) = (Some(20), Some(s.graph.tensor("sinks", &[36])));
                s.graph.attention(
                    "y",
                    Attention {
                        q,
                        k,
                        k_state,
                        heads: 36,
                        scale: 0.3,
                        window,
                        sinks,
                        compressed,
                        ..Attention::default()
                    },
                )
            });
            bench.check_with(kv, 1e-5, |seen| {
                let ids = count.map(|_| chosen(seen, "chosen"));
                let twin = Twin {
                    heads: 36,
                    kv_heads: 1,
                    value_dim: DIM,
                    scale: 0.3f32.into(),
                    sinks: Some(seen.weight("sinks")),
                    keys: stored(seen.rows("k"), DIM, kv),
                    values: None,
                    further: stored(seen.rows("block_rows"), DIM, further),
                    sees: &|p, t| in_window(Some(20), p, t),
                    sees_further: &|p, w| w < (p + 1) / stride && ids.as_ref().is_none_or(|ids| ids[p].contains(&w)),
                };
                twin.attend(&seen.rows("q"))
            });
        }
    }
}

#[test]
fn a_block_sees_all_of_itself() {
    for (own_values, window, kv) in [
        (true, None, KvType::F32),
        (false, Some(19), KvType::F32),
        (true, None, KvType::Turbo4),
        (false, Some(19), KvType::Turbo3),
    ] {
        let bench = Bench::new(|s| {
            let kind = StateKind::Window { len: 24 };
            let (k_state, v_state) = (state(s, "k", 2, DIM, kind), own_values.then(|| state(s, "v", 2, 20, kind)));
            let (q, past, own) = (s.floats("q", 6 * DIM), s.floats("past", 2 * DIM), s.floats("own", 2 * DIM));
            s.graph.store("past_store", &past, &k_state);
            let v = v_state.as_ref().map(|state| {
                let past = s.floats("past_v", 2 * 20);
                s.graph.store("past_v_store", &past, state);
                s.floats("own_v", 2 * 20)
            });
            let window = window.or(Some(23));
            s.graph.attention(
                "y",
                Attention {
                    q,
                    k: Some(own),
                    v,
                    k_state,
                    v_state,
                    heads: 6,
                    scale: 0.3,
                    window,
                    mask: Mask::Block,
                    ..Attention::default()
                },
            )
        });
        let window = window.unwrap_or(23);
        // Rows of a block come in one step, so each block is a run of its own; 13 and 40 rows are two of many.
        bench.check_blocks(kv, 1e-5, &[50, 13, 40, 1], |seen, start, rows| {
            let (past, own) = (seen.rows("past"), seen.rows("own"));
            let join = |past: Rows, own: Rows, dim: usize| {
                stored([past[..start].to_vec(), own[start..start + rows].to_vec()].concat(), dim, kv)
            };
            let twin = Twin {
                heads: 6,
                kv_heads: 2,
                value_dim: if own_values { 20 } else { DIM },
                scale: 0.3f32.into(),
                sinks: None,
                keys: join(past, own, DIM),
                values: own_values.then(|| join(seen.rows("past_v"), seen.rows("own_v"), 20)),
                further: Vec::new(),
                sees: &|_, t| t >= start || t + window >= start,
                sees_further: &|_, _| false,
            };
            twin.attend(&seen.rows("q")[start..start + rows])
        });
    }
}
