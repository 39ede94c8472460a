// Ops entry by entry, and views of rows.
#include "common.cuh"

enum Act : u32 { SILU = 0, GELU_TANH = 1, SIGMOID = 2, SOFTPLUS = 3, RELU_SQUARED = 4, SIGNED_SQRT = 5 };
enum Limit : u32 { UNLIMITED = 0, BEFORE_ACT = 1, AFTER_ACT = 2 };

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// ln(1 + e^x), without overflow.
__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

__device__ inline float activate_one(float x, u32 act) {
    switch (act) {
    case SILU: return x * sigmoid(x);
    case GELU_TANH: {
        const float inner = 0.7978845608028654f * fmaf(0.044715f * x * x, x, x);
        return 0.5f * x * (1.0f + tanhf(inner));
    }
    case SIGMOID: return sigmoid(x);
    case SOFTPLUS: return softplus(x);
    case RELU_SQUARED: {
        const float positive = fmaxf(x, 0.0f);
        return positive * positive;
    }
    default: {
        const float root = sqrtf(fmaxf(fabsf(x), 1e-6f));
        return x > 0 ? root : x < 0 ? -root : 0.0f;
    }
    }
}

// Bounds that let NaN pass.
__device__ inline float at_most(float x, float limit) { return x > limit ? limit : x; }
__device__ inline float clamp(float x, float limit) { return x > limit ? limit : x < -limit ? -limit : x; }

__device__ inline u64 entry() { return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; }

KERNEL activate(const float *x, float *out, u64 entries, u32 act) {
    const u64 i = entry();
    if (i < entries) out[i] = activate_one(x[i], act);
}

// act(gate) * up, bounded. A row of each operand begins `stride` entries behind the one before: the two may be halves of
// one row.
KERNEL glu(const float *gate, const float *up, float *out, u64 entries, u32 width, u32 stride, u32 act, u32 limit,
           float bound) {
    const u64 i = entry();
    if (i >= entries) return;
    const u64 at = i / width * stride + i % width;
    float a = gate[at], b = up[at];
    if (limit == BEFORE_ACT) a = at_most(a, bound);
    a = activate_one(a, act);
    if (limit == AFTER_ACT) a = at_most(a, bound);
    if (limit != UNLIMITED) b = clamp(b, bound);
    out[i] = a * b;
}

KERNEL add(const float *a, const float *b, float *out, u64 entries) {
    const u64 i = entry();
    if (i < entries) out[i] = a[i] + b[i];
}

// Each of the `narrow` entries of b's row meets a run of a's.
KERNEL mul(const float *a, const float *b, float *out, u64 entries, u32 width, u32 narrow) {
    const u64 i = entry();
    if (i >= entries) return;
    const u64 row = i / width;
    const u32 run = width / narrow;
    out[i] = a[i] * b[row * narrow + static_cast<u32>(i % width) / run];
}

// x * factor + offset.
KERNEL scale(const float *x, float *out, u64 entries, float factor, float offset) {
    const u64 i = entry();
    if (i < entries) out[i] = x[i] * factor + offset;
}

// x * scale + bias by vectors of so many entries, each of which meets a run of neighbours; either may be null.
KERNEL affine(const float *x, float *out, u64 entries, u32 width, const float *factors, u32 factor_count,
              const float *summands, u32 summand_count) {
    const u64 i = entry();
    if (i >= entries) return;
    const u32 column = static_cast<u32>(i % width);
    float y = x[i];
    if (factors) y = y * factors[column / (width / factor_count)];
    if (summands) y = y + summands[column / (width / summand_count)];
    out[i] = y;
}

KERNEL softcap(const float *x, float *out, u64 entries, float cap) {
    const u64 i = entry();
    if (i < entries) out[i] = tanhf(x[i] / cap) * cap;
}

// Dot products of runs of `run` entries: a warp for each.
KERNEL dot(const float *a, const float *b, float *out, u64 runs, u32 run) {
    const u64 i = entry() / WARP;
    if (i >= runs) return;
    float sum = 0;
    for (u32 j = threadIdx.x % WARP; j < run; j += WARP) sum = fmaf(a[i * run + j], b[i * run + j], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) out[i] = sum;
}

// Runs of `len` words, which begin every `from_step` words, to where they begin every `to_step`: slices, parts of
// concatenations.
KERNEL copy_runs(const u32 *x, u32 *out, u64 words, u32 len, u32 from_start, u32 from_step, u32 to_start, u32 to_step) {
    const u64 i = entry();
    if (i >= words) return;
    const u64 run = i / len, at = i % len;
    out[run * to_step + to_start + at] = x[run * from_step + from_start + at];
}

// The rows that are named, of `width` words.
KERNEL gather_rows(const u32 *x, u32 *out, const u32 *rows, u64 words, u32 width) {
    const u64 i = entry();
    if (i < words) out[i] = x[static_cast<u64>(rows[i / width]) * width + i % width];
}
