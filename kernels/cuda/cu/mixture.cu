// Mixtures of experts beside their matrices: the choice of experts, and the weighted sum.
#include "common.cuh"

enum Scoring : u32 { SOFTMAX = 0, SIGMOID_SCORE = 1, SQRT_SOFTPLUS = 2 };

// What is added to a sum of weights that something is divided by.
constexpr float LEAST_SUM = 1e-20f;

// An integer that is the greater the greater the number, equal for equal ones, and never 0. NaN counts as the least.
__device__ inline u32 key_of(float x) {
    if (x != x) return 1;
    const u32 bits = __float_as_uint(x + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ inline float number_of(u32 key) {
    if (key <= 1) return __uint_as_float(0x7fc00000u);
    return key >> 31 ? __uint_as_float(key ^ 0x80000000u) : __uint_as_float(~key);
}

// The place of the greatest key, of equal ones the first, which becomes 0. A warp for it; `keys` lies in shared memory.
__device__ inline u32 take_best(u32 *keys, u32 count) {
    const u32 lane = threadIdx.x % WARP;
    u32 best = 0, place = 0;
    for (u32 i = lane; i < count; i += WARP)
        if (keys[i] > best) {
            best = keys[i];
            place = i;
        }
    for (int mask = WARP / 2; mask > 0; mask /= 2) {
        const u32 other = __shfl_xor_sync(FULL, best, mask), where = __shfl_xor_sync(FULL, place, mask);
        if (other > best || (other == best && where < place)) {
            best = other;
            place = where;
        }
    }
    __syncwarp();
    if (lane == 0 && count > 0) keys[place] = 0;
    __syncwarp();
    return place;
}

// Chooses `used` experts for a row, or takes those `given`; see Route in kernels/graph. A warp is a block and has a row.
// Shared: scores [experts], keys [experts], keys of groups [groups].
KERNEL route(const float *outputs, u32 *ids, float *weights, const u32 *given, const float *bias, u32 experts, u32 used,
             u32 scoring, u32 groups, u32 groups_used, u32 normalize, float factor) {
    float *scores = dynamic_shared<float>();
    u32 *keys = reinterpret_cast<u32 *>(scores + experts), *group_keys = keys + experts;
    const u32 lane = threadIdx.x;
    const u64 row = blockIdx.x;
    outputs += row * experts;
    ids += row * used;
    weights += row * used;
    float greatest = -INFINITY;
    for (u32 i = lane; i < experts; i += WARP) greatest = fmaxf(greatest, outputs[i]);
    greatest = warp_max(greatest);
    float total = 0;
    for (u32 i = lane; i < experts; i += WARP) {
        const float x = outputs[i];
        float score;
        if (scoring == SOFTMAX) {
            score = expf(x - greatest);
        } else if (scoring == SIGMOID_SCORE) {
            score = 1.0f / (1.0f + expf(-x));
        } else {
            score = sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
        }
        total += score;
        scores[i] = score;
    }
    if (scoring == SOFTMAX) {
        total = warp_sum(total);
        for (u32 i = lane; i < experts; i += WARP) scores[i] /= total;
    }
    bool without_order = false;
    for (u32 i = lane; i < experts; i += WARP) {
        keys[i] = key_of(bias ? scores[i] + bias[i] : scores[i]);
        without_order |= keys[i] == 1;
    }
    without_order = __any_sync(FULL, without_order) && !given;
    __syncwarp();
    if (groups > 0 && !given) {
        const u32 members = experts / groups;
        for (u32 g = lane; g < groups; g += WARP) {
            u32 best = 0, second = 0;
            for (u32 i = g * members; i < (g + 1) * members; ++i) {
                if (keys[i] > best) {
                    second = best;
                    best = keys[i];
                } else {
                    second = max(second, keys[i]);
                }
            }
            group_keys[g] = key_of(number_of(best) + (members > 1 ? number_of(second) : 0.0f));
        }
        __syncwarp();
        for (u32 i = 0; i < groups_used; ++i) take_best(group_keys, groups);
        for (u32 i = lane; i < experts; i += WARP)
            if (group_keys[i / members] != 0) keys[i] = 0;
        __syncwarp();
    }
    float sum = 0;
    for (u32 j = 0; j < used; ++j) {
        const u32 id = given ? given[row * used + j] : take_best(keys, experts);
        sum += scores[id];
        if (lane == 0) ids[j] = id;
    }
    __syncwarp();
    const float divisor = normalize ? sum + LEAST_SUM : 1.0f;
    for (u32 j = lane; j < used; j += WARP) {
        // A choice among what has no order must not end as an answer that looks like any other.
        weights[j] = without_order ? __uint_as_float(0x7fc00000u) : scores[ids[j]] / divisor * factor;
    }
}

// The sum of y_j * weight_j over the experts of a row, by rising rank. y has `used` rows of `width` for each row.
KERNEL combine(const float *y, const float *weights, float *out, u64 entries, u32 width, u32 used) {
    const u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= entries) return;
    const u64 row = i / width, column = i % width;
    float sum = 0;
    for (u32 j = 0; j < used; ++j) sum += weights[row * used + j] * y[(row * used + j) * width + column];
    out[i] = sum;
}

// Counts how many rows each expert gets.
KERNEL tally(const u32 *ids, u32 count, u32 *rows) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) atomicAdd(rows + ids[i], 1u);
}
