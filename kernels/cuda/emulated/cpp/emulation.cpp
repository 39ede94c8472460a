// Runs the threads of a block as fibers: see emulation.h. This file is compiled behind the kernel file it belongs to, which
// is followed by a table of the file's kernels.

#include <cstdio>
#include <type_traits>
#include <setjmp.h>
#include <vector>

namespace emulated {

constexpr unsigned MAX_THREADS = 1024;
constexpr size_t STACK = 128 * 1024;

struct Warp {
    unsigned alive, arrived, generation;
    // Two rounds of values: a lane that is a round ahead of another does not overwrite what that one still reads.
    uint64_t slots[2][32];
};

struct Fiber {
    void *stack_pointer;
    uint3 thread;
    bool done;
};

struct Block {
    // Taken once and never written as a whole: what no fiber touches takes no memory.
    unsigned char *stacks;
    std::vector<Fiber> fibers;
    Warp warps[MAX_THREADS / 32];
    unsigned threads, alive, arrived, generation;
    // Counts what fibers get done, so that a block that stands still is noticed.
    uint64_t progress;
    void *scheduler;
    void (*run)(void *);
    void *run_data;
    char error[256];
    jmp_buf failed;
};

thread_local Fiber *current = nullptr;
thread_local uint3 thread_index, block_index, block_size, grid_size;
thread_local unsigned char *dynamic = nullptr;
static thread_local Block block;

uint3 thread_of_current() { return current->thread; }

// Saves what a call must preserve on the stack that is left, and goes on where the other one was left.
#if defined(__x86_64__)
extern "C" void emulated_switch(void **from, void *to);
asm(R"(
.text
.weak emulated_switch
.type emulated_switch,@function
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulated_switch,.-emulated_switch
)");
#elif defined(__aarch64__)
extern "C" void emulated_switch(void **from, void *to);
asm(R"(
.text
.weak emulated_switch
.type emulated_switch,%function
emulated_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
#else
#error "the emulation knows x86-64 and aarch64"
#endif

static void yield() { emulated_switch(&current->stack_pointer, block.scheduler); }

void fail(const char *why) {
    std::snprintf(block.error, sizeof block.error, "%s (block %u %u %u, thread %u)", why, block_index.x, block_index.y,
                  block_index.z, current ? current->thread.x : 0);
    longjmp(block.failed, 1);
}

static void release_block() {
    block.arrived = 0;
    block.generation++;
    block.progress++;
}

static void release_warp(Warp &warp) {
    warp.arrived = 0;
    warp.generation++;
    block.progress++;
}

void block_barrier() {
    if (++block.arrived == block.alive) return release_block();
    const unsigned generation = block.generation;
    while (block.generation == generation) yield();
}

const uint64_t *exchange(uint64_t value) {
    const unsigned x = current->thread.x;
    Warp &warp = block.warps[x / 32];
    const unsigned generation = warp.generation;
    uint64_t *slots = warp.slots[generation % 2];
    slots[x % 32] = value;
    if (++warp.arrived == warp.alive) {
        release_warp(warp);
    } else {
        while (warp.generation == generation) yield();
    }
    return slots;
}

static void enter() {
    block.run(block.run_data);
    current->done = true;
    block.progress++;
    Warp &warp = block.warps[current->thread.x / 32];
    if (--warp.alive > 0 && warp.arrived == warp.alive) release_warp(warp);
    if (--block.alive > 0 && block.arrived == block.alive) release_block();
    for (;;) yield();
}

static void prepare(Fiber &fiber, unsigned i) {
    fiber.thread = {i, 0, 0};
    fiber.done = false;
    unsigned char *top = block.stacks + (i + 1) * STACK;
    void **sp = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15));
#if defined(__x86_64__)
    *--sp = nullptr;                            // keeps the stack aligned as after a call
    *--sp = reinterpret_cast<void *>(&enter);
    for (int k = 0; k < 6; ++k) *--sp = nullptr;
#else
    sp -= 20;
    for (int k = 0; k < 20; ++k) sp[k] = nullptr;
    sp[11] = reinterpret_cast<void *>(&enter);
#endif
    fiber.stack_pointer = sp;
}

static void run_block() {
    block.alive = block.threads;
    block.arrived = 0;
    for (unsigned w = 0; w * 32 < block.threads; ++w) {
        block.warps[w].alive = block.threads - w * 32 < 32 ? block.threads - w * 32 : 32;
        block.warps[w].arrived = 0;
    }
    for (unsigned i = 0; i < block.threads; ++i) prepare(block.fibers[i], i);
    while (block.alive > 0) {
        const uint64_t before = block.progress;
        for (unsigned i = 0; i < block.threads; ++i) {
            if (block.fibers[i].done) continue;
            current = &block.fibers[i];
            emulated_switch(&block.scheduler, current->stack_pointer);
        }
        // A whole round in which nobody went on.
        if (block.progress == before) fail("threads wait for a barrier that others never reach");
    }
}

static const char *launch(void (*run)(void *), void *data, uint3 grid, unsigned threads, size_t shared) {
    if (threads == 0 || threads > MAX_THREADS) return "a block has 1 to 1024 threads";
    if (shared > 232448) return "a block has at most 227 KiB of shared memory";
    if (block.fibers.empty()) {
        block.stacks = static_cast<unsigned char *>(std::malloc(MAX_THREADS * STACK));
        if (!block.stacks) return "the host has no memory for the threads' stacks";
        block.fibers.resize(MAX_THREADS);
    }
    static thread_local std::vector<unsigned char> memory;
    memory.resize(shared + 64);
    dynamic = reinterpret_cast<unsigned char *>((reinterpret_cast<uintptr_t>(memory.data()) + 63) & ~uintptr_t(63));
    block.threads = threads;
    block.run = run;
    block.run_data = data;
    block_size = {threads, 1, 1};
    grid_size = grid;
    if (setjmp(block.failed)) return block.error;
    for (block_index.z = 0; block_index.z < grid.z; ++block_index.z)
        for (block_index.y = 0; block_index.y < grid.y; ++block_index.y)
            for (block_index.x = 0; block_index.x < grid.x; ++block_index.x) {
                std::memset(dynamic, 0xff, shared);
                run_block();
            }
    return nullptr;
}

template <class... A> struct Call {
    void (*kernel)(A...);
    void **arguments;
    template <size_t... I> void apply(std::index_sequence<I...>) {
        kernel(*static_cast<std::remove_reference_t<A> *>(arguments[I])...);
    }
    static void run(void *self) { static_cast<Call *>(self)->apply(std::index_sequence_for<A...>()); }
};

template <class... A>
const char *start(void (*kernel)(A...), uint3 grid, unsigned threads, size_t shared, void **arguments, const size_t *sizes,
                  size_t count) {
    const size_t expected[] = {sizeof(A)..., 0};
    if (count != sizeof...(A)) return "the launch has another number of arguments than the kernel";
    for (size_t i = 0; i < count; ++i)
        if (sizes[i] != expected[i]) {
            std::snprintf(block.error, sizeof block.error, "argument %zu has %zu bytes, the kernel takes %zu", i, sizes[i],
                          expected[i]);
            return block.error;
        }
    Call<A...> out{kernel, arguments};
    return launch(&Call<A...>::run, &out, grid, threads, shared);
}

float f16_to_f32(uint16_t bits) {
    const unsigned sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31, mantissa = bits & 0x3ff;
    if (exponent == 0) {
        const float x = ldexpf(float(mantissa), -24);
        return sign ? -x : x;
    }
    const unsigned high = exponent == 31 ? 0x7f800000u : (exponent + 112) << 23;
    return from_bits<float>(sign | high | mantissa << 13);
}

uint16_t f32_to_f16(float x) {
    const unsigned bits = unsigned(to_bits(x)), sign = (bits >> 16) & 0x8000u;
    const unsigned magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7fff);
    if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00);
    if (magnitude < 0x38800000u) {
        // Subnormal: a whole number of 2^-24.
        const float scaled = ldexpf(from_bits<float>(magnitude), 24);
        return uint16_t(sign | unsigned(nearbyintf(scaled)));
    }
    const unsigned rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    return uint16_t(sign | ((rounded - 0x38000000u) >> 13));
}

} // namespace emulated
