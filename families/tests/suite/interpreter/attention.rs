//! Attention of one sequence, and what prepares its keys.

use bantam_graph::{Attention, Mask, NO_ID, Op, Pool, TopKeys};

use super::{Run, Value, ops::softmax};

/// The states that an op stores before it computes, and the values that it stores there.
pub(super) fn stored(op: &Op) -> Vec<(&str, &str)> {
    match op {
        Op::Attention(o) if o.stores() => {
            let keys = Some(o.k_state.as_str()).zip(o.k.as_deref());
            let values = o.v_state.as_deref().zip(o.v.as_deref());
            keys.into_iter().chain(values).collect()
        }
        _ => vec![],
    }
}

/// A visible key with its value.
type KeyValue<'v> = (&'v [f64], &'v [f64]);

pub(super) fn attention(run: &Run<'_>, o: &Attention) -> Value {
    let q = run.value(&o.q);
    let (keys, dim) = run.state(&o.k_state);
    let values = o.v_state.as_deref().map_or((keys, dim), |state| run.state(state));
    let value_dim = o.value_dim.unwrap_or(values.1);
    let sinks = run.optional_weight(&o.sinks);
    let per_key_head = o.heads * dim / keys.width;
    let mut data = Vec::new();
    for (i, q) in q.rows().enumerate() {
        let visible = visible(run, o, i, [keys, values.0]);
        for (head, q) in q.chunks_exact(dim).enumerate() {
            let kv_head = head / per_key_head;
            let score = |(k, _): &KeyValue<'_>| dot(q, &k[kv_head * dim..][..dim]) * f64::from(o.scale);
            let mut scores: Vec<f64> = visible.iter().map(score).collect();
            scores.extend(sinks.map(|sinks| sinks.data[head]));
            let mut sum = vec![0.0; value_dim];
            for (share, (_, v)) in softmax(&scores).into_iter().zip(&visible) {
                let v = &v[kv_head * values.1..][..value_dim];
                sum.iter_mut().zip(v).for_each(|(sum, v)| *sum += share * v);
            }
            data.extend(sum);
        }
    }
    Value { width: o.heads * value_dim, data }
}

/// What the query of row `i` sees.
fn visible<'r>(run: &'r Run<'_>, o: &Attention, i: usize, [keys, values]: [&'r Value; 2]) -> Vec<KeyValue<'r>> {
    let position = run.input.start + i;
    // An alias holds tokens before the step; a state of the graph also those of the step up to this one.
    let end = if o.mask == Mask::Block { run.input.start } else { keys.rows().len().min(position + 1) };
    let window_end = if o.mask == Mask::Block { run.input.start } else { position + 1 };
    let first = o.window.map_or(0, |window| window_end.saturating_sub(window));
    let chosen = |token: usize| {
        o.select.as_ref().is_none_or(|select| {
            let block = token / select.block;
            block >= (position + 1) / select.block || run.value(&select.ids).row(i).contains(&(block as f64))
        })
    };
    let mut visible: Vec<KeyValue<'_>> =
        (first..end).filter(|&token| chosen(token)).map(|token| (keys.row(token), values.row(token))).collect();
    if o.mask == Mask::Block {
        let keys = run.optional(&o.k).expect("a block's own keys");
        visible.extend(keys.rows().zip(run.optional(&o.v).unwrap_or(keys).rows()));
    }
    if let Some(compressed) = &o.compressed {
        let rows = run.state(&compressed.state).0;
        let ids = run.optional(&compressed.select).map(|ids| ids.row(i));
        let complete = 0..(position + 1) / run.stride(&compressed.state);
        let shown = complete.filter(|&row| ids.is_none_or(|ids| ids.contains(&(row as f64))));
        visible.extend(shown.map(|row| (rows.row(row), rows.row(row))));
    }
    visible
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(super) fn top_keys(run: &Run<'_>, o: &TopKeys) -> Value {
    let (q, weights) = (run.value(&o.q), run.optional(&o.weights));
    let ((keys, dim), stride) = (run.state(&o.k_state), run.stride(&o.k_state));
    let mut data = Vec::new();
    for (i, q) in q.rows().enumerate() {
        let score = |row: usize| -> f64 {
            let heads = q.chunks_exact(dim).enumerate().map(|(head, q)| {
                let weight = weights.map_or(1.0, |weights| weights.row(i)[head]);
                weight * dot(q, keys.row(row)).max(0.0)
            });
            heads.sum::<f64>() * f64::from(o.scale)
        };
        let mut rows: Vec<(usize, f64)> = (0..(i + 1) / stride).map(|row| (row, score(row))).collect();
        rows.sort_by(|a, b| b.1.total_cmp(&a.1));
        rows.truncate(o.count);
        rows.sort_by_key(|(row, _)| *row);
        let ids = rows.iter().map(|(row, _)| *row as f64);
        data.extend(ids.chain(std::iter::repeat(f64::from(NO_ID))).take(o.count));
    }
    Value { width: o.count, data }
}

pub(super) fn pool(run: &Run<'_>, o: &Pool) -> Value {
    let (x, gate, bias) = (run.value(&o.x), run.optional(&o.gate), run.optional_weight(&o.bias));
    let width = if o.overlap { x.width / 2 } else { x.width };
    let logit = |token: usize, channel: usize| {
        let bias = bias.map_or(0.0, |bias| bias.data[token % o.stride * x.width + channel]);
        gate.map_or(0.0, |gate| gate.row(token)[channel] + bias)
    };
    let mut data = Vec::new();
    for block in 0..x.rows().len() / o.stride {
        let own = block * o.stride..(block + 1) * o.stride;
        for channel in 0..width {
            // A token and the channel of its row that counts: the second half in its own block, the first in the next.
            let own_channel = x.width - width + channel;
            let mut entries: Vec<(usize, usize)> = own.clone().map(|token| (token, own_channel)).collect();
            if o.overlap && block > 0 {
                entries.extend(own.clone().map(|token| (token - o.stride, channel)));
            }
            let logits: Vec<f64> = entries.iter().map(|&(token, channel)| logit(token, channel)).collect();
            let shares = softmax(&logits);
            data.push(entries.iter().zip(shares).map(|(&(token, channel), share)| share * x.row(token)[channel]).sum());
        }
    }
    Value { width, data }
}
