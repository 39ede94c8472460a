//! Causal attention of one sequence.

use bantam_graph::Attention;

use super::{Value, ops::softmax};

pub(crate) fn attention(o: &Attention, kv_heads: usize, q: &Value, k: &Value, v: &Value) -> Value {
    let (key_dim, value_dim) = (k.width / kv_heads, v.width / kv_heads);
    let queries_per_kv = o.heads / kv_heads;
    let mut data = Vec::new();
    for (position, q) in q.rows().enumerate() {
        let first = o.window.map_or(0, |window| (position + 1).saturating_sub(window));
        for (head, q) in q.chunks_exact(key_dim).enumerate() {
            let kv_head = head / queries_per_kv;
            let score = |at: usize| -> f64 {
                let k = &k.row(at)[kv_head * key_dim..][..key_dim];
                q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() * f64::from(o.scale)
            };
            let scores: Vec<f64> = (first..=position).map(score).collect();
            let mut sum = vec![0.0; value_dim];
            for (share, at) in softmax(&scores).into_iter().zip(first..) {
                let v = &v.row(at)[kv_head * value_dim..][..value_dim];
                sum.iter_mut().zip(v).for_each(|(sum, v)| *sum += share * v);
            }
            data.extend(sum);
        }
    }
    Value { width: o.heads * value_dim, data }
}
