// Normalisation and rotation: ops that look at a run of entries (a row, a head) at a time.
#include "common.cuh"

// Each run of `group` entries: x / sqrt(mean(x²) + eps), or the sum instead of the mean; times `weight`, which has an entry
// for each of the row or of the run, or is null. One block for a run, or a warp for each where runs are short.
KERNEL norm_runs(const float *x, float *out, const float *weight, u32 weight_width, u32 group, u32 mean, float eps) {
    __shared__ float scratch[WARP];
    const u64 start = static_cast<u64>(blockIdx.x) * group;
    float sum = 0;
    for (u32 i = threadIdx.x; i < group; i += blockDim.x) sum = fmaf(x[start + i], x[start + i], sum);
    sum = block_sum(sum, scratch);
    const float factor = 1.0f / sqrtf((mean ? sum / static_cast<float>(group) : sum) + eps);
    for (u32 i = threadIdx.x; i < group; i += blockDim.x) {
        const float scaled = x[start + i] * factor;
        out[start + i] = weight ? scaled * weight[(start + i) % weight_width] : scaled;
    }
}

// Cosine and sine of every pair's angle: a row is [cos; pairs] [sin; pairs]. The angle is rounded to f32, as in the code
// that models were trained with; cosine and sine are those of the rounded angle.
KERNEL angles(const u32 *positions, float *out, u32 rows, const float *frequencies, u32 pairs, float magnitude) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * pairs) return;
    const u32 row = i / pairs, pair = i % pairs;
    const double angle = static_cast<double>(static_cast<float>(positions[row]) * frequencies[pair]);
    float *to = out + static_cast<u64>(row) * 2 * pairs + pair;
    to[0] = static_cast<float>(cos(angle)) * magnitude;
    to[pairs] = static_cast<float>(sin(angle)) * magnitude;
}

// Turns heads by the angles of their rows. Entries `at(j)` and `at(j) + far` of a head turn together, from `first` on;
// pairs lie `step` apart. All others are copied. A thread for each entry that is the first of a pair, or is in none.
KERNEL rope(const float *x, float *out, const float *angles, u64 heads, u32 heads_per_row, u32 head_dim, u32 first, u32 pairs,
            u32 step, u32 far, float direction) {
    const u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= heads * head_dim) return;
    const u64 head = i / head_dim;
    const u32 entry = static_cast<u32>(i % head_dim);
    const float *from = x + head * head_dim;
    float *to = out + head * head_dim;
    // Which pair the entry is in, and whether it is the first of it.
    u32 pair = NONE;
    bool leads = false;
    if (entry >= first) {
        const u32 place = entry - first;
        if (step == 2) {
            if (place / 2 < pairs) pair = place / 2;
            leads = place % 2 == 0;
        } else if (place < pairs) {
            pair = place;
            leads = true;
        } else if (place >= far && place - far < pairs) {
            pair = place - far;
        }
    }
    if (pair == NONE) {
        to[entry] = from[entry];
    } else if (leads) {
        const float *turn = angles + head / heads_per_row * 2 * pairs;
        const float c = turn[pair], s = turn[pairs + pair] * direction;
        const float a = from[entry], b = from[entry + far];
        to[entry] = a * c - b * s;
        to[entry + far] = b * c + a * s;
    }
}
