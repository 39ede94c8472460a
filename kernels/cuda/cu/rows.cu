// Ops that look at one row at a time: norms, the elementwise set, views, rotation, routing, residual streams.
#include "common.cuh"

// Threads of a block that share a run of entries.
constexpr u32 NORM_THREADS = 256;

// Each run of `group` entries: x / sqrt(mean(x²) + eps), or the sum instead of the mean; times `weight`, which has an entry
// for each of the row or of the run, or is null. One block for a run.
KERNEL norm(const float *x, float *out, const float *weight, u32 weight_width, u32 group, u32 mean, float eps) {
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
