//! Writes a GGUF file of a real model's shape with weights at random, for measurements: speed does not depend on the values.
//!
//! ```sh
//! cargo run --release -p bantam-families --example random_model -- qwen3-8b Q4_K_M model.gguf
//! ```
//!
//! Shapes: `qwen3-0.6b`, `qwen3-8b`, `qwen3-30b-a3b`. Formats: `Q4_K_M` (Q4_K, and Q6_K where llama.cpp's mix has it), `Q8_0`.
//! The file has no vocabulary: it is for `bantam benchmark` and `bantam plan`.

use std::{error::Error, fs::File, io::BufWriter};

use bantam_gguf::{GgmlType, Value, writer::GgufWriter};

/// A model's extents.
struct Shape {
    name: &'static str,
    layers: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    ffn: usize,
    /// Experts of a layer, and those that a token goes through.
    experts: Option<(usize, usize)>,
    tied: bool,
}

const SHAPES: [Shape; 3] = [
    Shape {
        name: "qwen3-0.6b",
        layers: 28,
        hidden: 1024,
        heads: 16,
        kv_heads: 8,
        ffn: 3072,
        experts: None,
        tied: true,
    },
    Shape {
        name: "qwen3-8b",
        layers: 36,
        hidden: 4096,
        heads: 32,
        kv_heads: 8,
        ffn: 12288,
        experts: None,
        tied: false,
    },
    Shape {
        name: "qwen3-30b-a3b",
        layers: 48,
        hidden: 2048,
        heads: 32,
        kv_heads: 4,
        ffn: 768,
        experts: Some((128, 8)),
        tied: false,
    },
];

const HEAD: usize = 128;
const VOCAB: usize = 151_936;
const CONTEXT: u32 = 40_960;

/// A tensor of matrices, extents with the fastest first, as GGUF has them.
struct Tensor {
    name: String,
    shape: Vec<u64>,
    ty: GgmlType,
}

impl Shape {
    fn tensors(&self, mixed: bool) -> Vec<Tensor> {
        let (hidden, heads, kv) = (self.hidden, self.heads * HEAD, self.kv_heads * HEAD);
        let (plain, better) = if mixed { (GgmlType::Q4_K, GgmlType::Q6_K) } else { (GgmlType::Q8_0, GgmlType::Q8_0) };
        let of = |name: String, ty: GgmlType, shape: &[usize]| Tensor {
            name,
            ty,
            shape: shape.iter().map(|n| *n as u64).collect(),
        };
        let mut all = vec![
            of("token_embd.weight".into(), if self.tied { better } else { plain }, &[hidden, VOCAB]),
            of("output_norm.weight".into(), GgmlType::F32, &[hidden]),
        ];
        if !self.tied {
            all.push(of("output.weight".into(), better, &[hidden, VOCAB]));
        }
        for layer in 0..self.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            let down = if has_more_bits(layer, self.layers) { better } else { plain };
            all.extend([
                of(name("attn_norm"), GgmlType::F32, &[hidden]),
                of(name("ffn_norm"), GgmlType::F32, &[hidden]),
                of(name("attn_q_norm"), GgmlType::F32, &[HEAD]),
                of(name("attn_k_norm"), GgmlType::F32, &[HEAD]),
                of(name("attn_q"), plain, &[hidden, heads]),
                of(name("attn_k"), plain, &[hidden, kv]),
                of(name("attn_v"), down, &[hidden, kv]),
                of(name("attn_output"), plain, &[heads, hidden]),
            ]);
            let ffn = self.ffn;
            all.extend(match self.experts {
                None => vec![
                    of(name("ffn_gate"), plain, &[hidden, ffn]),
                    of(name("ffn_up"), plain, &[hidden, ffn]),
                    of(name("ffn_down"), down, &[ffn, hidden]),
                ],
                Some((experts, _)) => vec![
                    of(name("ffn_gate_inp"), GgmlType::F32, &[hidden, experts]),
                    of(name("ffn_gate_exps"), plain, &[hidden, ffn, experts]),
                    of(name("ffn_up_exps"), plain, &[hidden, ffn, experts]),
                    of(name("ffn_down_exps"), down, &[ffn, hidden, experts]),
                ],
            });
        }
        all
    }

    fn keys(&self, writer: &mut GgufWriter<'_>) {
        let architecture = if self.experts.is_some() { "qwen3moe" } else { "qwen3" };
        writer.key("general.architecture", architecture).key("general.name", self.name);
        let mut key = |name: &str, value: Value| {
            writer.key(format!("{architecture}.{name}"), value);
        };
        let count = |n: usize| Value::U32(n as u32);
        key("block_count", count(self.layers));
        key("context_length", Value::U32(CONTEXT));
        key("embedding_length", count(self.hidden));
        key("feed_forward_length", count(self.ffn));
        key("attention.head_count", count(self.heads));
        key("attention.head_count_kv", count(self.kv_heads));
        key("attention.key_length", count(HEAD));
        key("attention.value_length", count(HEAD));
        key("attention.layer_norm_rms_epsilon", Value::F32(1e-6));
        key("rope.freq_base", Value::F32(1e6));
        key("vocab_size", count(VOCAB));
        if let Some((experts, used)) = self.experts {
            key("expert_count", count(experts));
            key("expert_used_count", count(used));
            key("expert_feed_forward_length", count(self.ffn));
        }
    }
}

/// Layers whose values and down projections llama.cpp's mixes give more bits.
fn has_more_bits(layer: usize, layers: usize) -> bool {
    layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2
}

/// Blocks at random, with scales that keep the weights small.
fn blocks(ty: GgmlType, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    let mut data: Vec<u8> = words.flat_map(u64::to_le_bytes).take(bytes).collect();
    // Half floats: 1e-4 and 7.5 times that, where a block has them.
    let (scale, offset) = (0x068e_u16.to_le_bytes(), 0x1225_u16.to_le_bytes());
    for block in data.chunks_exact_mut(ty.block_bytes()) {
        match ty {
            GgmlType::Q4_K => {
                block[..2].copy_from_slice(&scale);
                block[2..4].copy_from_slice(&offset);
            }
            GgmlType::Q6_K => block[208..].copy_from_slice(&scale),
            GgmlType::Q8_0 => block[..2].copy_from_slice(&scale),
            _ => block.copy_from_slice(&1f32.to_le_bytes()),
        }
    }
    data
}

fn bytes(tensor: &Tensor) -> Result<usize, Box<dyn Error>> {
    let (cols, rows) = (tensor.shape[0], tensor.shape[1..].iter().product::<u64>());
    let row = tensor.ty.row_bytes(cols as usize).ok_or_else(|| format!("{}: rows of {cols}", tensor.name))?;
    Ok(usize::try_from(row as u64 * rows)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [shape, format, path] = arguments.as_slice() else {
        return Err("usage: random_model SHAPE Q4_K_M|Q8_0 FILE".into());
    };
    let shape = SHAPES.iter().find(|known| known.name == shape.as_str()).ok_or("there is no such shape")?;
    let tensors = shape.tensors(match format.as_str() {
        "Q4_K_M" => true,
        "Q8_0" => false,
        _ => return Err("a format is Q4_K_M or Q8_0".into()),
    });
    // Tensors of a format begin with the same blocks.
    let types = [GgmlType::F32, GgmlType::Q4_K, GgmlType::Q6_K, GgmlType::Q8_0];
    let mut pools = Vec::new();
    for ty in types {
        let sizes = tensors.iter().filter(|tensor| tensor.ty == ty).map(bytes).collect::<Result<Vec<_>, _>>()?;
        pools.push((ty, blocks(ty, sizes.into_iter().max().unwrap_or(0))));
    }
    let mut writer = GgufWriter::new();
    shape.keys(&mut writer);
    for tensor in &tensors {
        let pool = pools.iter().find(|(ty, _)| *ty == tensor.ty).map_or(&[][..], |(_, pool)| pool);
        writer.tensor(tensor.name.as_str(), tensor.ty, &tensor.shape, &pool[..bytes(tensor)?]);
    }
    writer.write(BufWriter::new(File::create(path)?))?;
    Ok(())
}
