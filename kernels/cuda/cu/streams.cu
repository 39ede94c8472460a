// Hyper-connections: how blocks read and rewrite several residual streams.
#include "common.cuh"

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ inline void divide_columns(float *mix, u32 streams, float eps) {
    for (u32 d = 0; d < streams; ++d) {
        float total = 0;
        for (u32 s = 0; s < streams; ++s) total += mix[s * streams + d];
        total += eps;
        for (u32 s = 0; s < streams; ++s) mix[s * streams + d] /= total;
    }
}

// All three gates of a row: a thread for each row. See StreamGates in kernels/graph.
KERNEL stream_gates(const float *x, float *pre, float *post, float *mix, u32 rows, const float *scale, const float *base,
                    u32 streams, u32 iterations, float eps) {
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const u32 width = (2 + streams) * streams;
    x += static_cast<u64>(row) * width;
    for (u32 s = 0; s < streams; ++s) {
        pre[row * streams + s] = sigmoid(x[s] * scale[0] + base[s]) + eps;
        post[row * streams + s] = 2.0f * sigmoid(x[streams + s] * scale[1] + base[streams + s]);
    }
    float *own = mix + static_cast<u64>(row) * streams * streams;
    for (u32 s = 0; s < streams; ++s) {
        float greatest = -INFINITY, total = 0;
        for (u32 d = 0; d < streams; ++d) {
            const u32 j = (2 + s) * streams + d;
            own[s * streams + d] = x[j] * scale[2] + base[j];
            greatest = fmaxf(greatest, own[s * streams + d]);
        }
        for (u32 d = 0; d < streams; ++d) {
            own[s * streams + d] = expf(own[s * streams + d] - greatest);
            total += own[s * streams + d];
        }
        for (u32 d = 0; d < streams; ++d) own[s * streams + d] = own[s * streams + d] / total + eps;
    }
    divide_columns(own, streams, eps);
    for (u32 i = 1; i < iterations; ++i) {
        for (u32 s = 0; s < streams; ++s) {
            float total = 0;
            for (u32 d = 0; d < streams; ++d) total += own[s * streams + d];
            total += eps;
            for (u32 d = 0; d < streams; ++d) own[s * streams + d] /= total;
        }
        divide_columns(own, streams, eps);
    }
}

// The sum over streams, by rising stream, each times its weight: `count` weights a row, one for each stream or for each
// entry of each, or null.
KERNEL stream_collapse(const float *x, float *out, u64 entries, u32 width, u32 streams, const float *weights, u32 count) {
    const u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= entries) return;
    const u64 row = i / width, column = i % width;
    float sum = 0;
    for (u32 s = 0; s < streams; ++s) {
        const u64 at = (row * streams + s) * width + column;
        const float weight = !weights ? 1.0f : count == streams ? weights[row * streams + s] : weights[at];
        sum += weight * x[at];
    }
    out[i] = sum;
}

// The new streams: the block's result first, then the old streams by rising number. `x` and `mix` may be null.
KERNEL stream_update(const float *x, const float *y, const float *post, const float *mix, float *out, u64 entries, u32 width,
                     u32 streams) {
    const u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= entries) return;
    const u64 column = i % width, item = i / width, row = item / streams;
    const u32 stream = static_cast<u32>(item % streams);
    float sum = post[item] * y[row * width + column];
    if (x && !mix) sum += x[i];
    if (x && mix)
        for (u32 s = 0; s < streams; ++s)
            sum += mix[(row * streams + s) * streams + stream] * x[(row * streams + s) * width + column];
    out[i] = sum;
}
