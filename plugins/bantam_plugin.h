/*
 * The functions that a Bantam family plugin exports, version 0.
 *
 * A family plugin describes models to Bantam: from a checkpoint's metadata and list of tensors it makes a graph. It is a
 * shared library with the C functions declared here. It sees no weights, computes nothing, and is asked only while a model
 * is opened. Bytes go in, bytes come out, and both are JSON in UTF-8; docs/plugins.md says what is in it,
 * plugin.schema.json says so exactly. No type of any language crosses but those below.
 *
 * The same four functions make a WebAssembly module (wasm32, no imports) a plugin, if it exports its memory and one
 * function more; see bantam_plugin_alloc.
 *
 * What a plugin may rely on:
 *   - bantam_plugin_abi is called first, and nothing else if it returns another version than the host knows.
 *   - Functions are called from one thread, one at a time.
 *   - The host reads an answer and then gives it back by bantam_plugin_free, exactly once.
 * What a plugin must do:
 *   - Return. A build that takes longer than the host's limit (seconds) is given up, and the plugin with it.
 *   - Let no exception and no panic out of a function. What goes wrong is an answer: {"bantam_plugin":0,"error":{…}}.
 *   - Take any bytes for a request, and answer those that it does not understand with an error.
 */
#ifndef BANTAM_PLUGIN_H
#define BANTAM_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

/* The version of all that is declared here, and of the JSON: "bantam_plugin" in every message. */
#define BANTAM_PLUGIN_ABI 0u

#if defined(_WIN32)
#define BANTAM_PLUGIN_EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define BANTAM_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define BANTAM_PLUGIN_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that the plugin owns. In a WebAssembly plugin two 32-bit integers: an address in its memory, and a length. */
typedef struct bantam_bytes {
    uint8_t *data; /* the first byte; no zero byte ends them */
    size_t len;    /* how many */
} bantam_bytes;

/* Returns BANTAM_PLUGIN_ABI as it was when the plugin was compiled. */
BANTAM_PLUGIN_EXPORT uint32_t bantam_plugin_abi(void);

/*
 * Says who the plugin is and what it takes:
 *
 *   {"bantam_plugin":0, "name":"…", "version":"…", "architectures":["…"],
 *    "hf_architectures":["…"], "draft_architectures":["…"]}           (the last two may be missing)
 *
 * Returns 0 if *answer holds that; anything else: there is no answer, and *answer is not to be looked at.
 */
BANTAM_PLUGIN_EXPORT int32_t bantam_plugin_describe(bantam_bytes *answer);

/*
 * Answers a request, which is the host's memory and is there until the function returns:
 *
 *   {"bantam_plugin":0, "model":  {"checkpoint":CHECKPOINT}}          answered by "model":MODEL
 *   {"bantam_plugin":0, "import": {"checkpoint":HF_CHECKPOINT}}       answered by "import":IMPORT
 *   {"bantam_plugin":0, "draft":  {"draft":CHECKPOINT, "target":CHECKPOINT}}   answered by "draft":DRAFT
 *
 * or any of them by an error:
 *
 *   {"bantam_plugin":0, "error": {"key":"…", "expected":"…", "found":"…"}}
 *   {"bantam_plugin":0, "error": {"tensor":"…", "expected":"…", "found":"…"}}
 *   {"bantam_plugin":0, "error": {"message":"…"}}
 *
 * Imports are asked for only if hf_architectures names one, drafts only if draft_architectures does.
 *
 * Returns 0 if *answer holds an answer, a refusal too; anything else: there is none (no memory, for instance).
 */
BANTAM_PLUGIN_EXPORT int32_t bantam_plugin_build(const uint8_t *request, size_t request_len, bantam_bytes *answer);

/* Takes an answer's memory back. What the two functions above allocated may come from any allocator for that reason. */
BANTAM_PLUGIN_EXPORT void bantam_plugin_free(bantam_bytes *answer);

/*
 * The four functions below are for plugins that bring ops of their own ("custom" in a graph); all others leave them out.
 * They work on numbers, inside the server and in the middle of a step, and only where its user allowed that
 * (--allow-plugin-ops). WebAssembly plugins have none.
 *
 * What an op is told is a request of its own:
 *
 *   {"bantam_plugin":0, "op":"…", "attributes":{…}, "operands":[WIDTH, …], "weights":[SHAPE, …]}
 *
 * Answers with {"bantam_plugin":0, "width":W}, the entries of a row of the result, or with an error. Returns as
 * bantam_plugin_build does. It is asked in a process of its own first, and once more in the server for each node.
 *
 * Beside "width" there may be "cuda": the source of a function in CUDA C++ that computes the same on a card:
 *
 *   __device__ void bantam_op(const BantamOpRows &call, unsigned long long row);
 *
 * All 256 threads of a block enter it for one row, and share the work by threadIdx.x. What it is given is declared before it:
 *
 *   struct BantamOpRows {
 *       const float *x[8];              row r of operand i begins at x[i] + r * widths[i]
 *       const float *weight[8];         weight i, all of it: lengths[i] entries
 *       float *out;                     row r begins at out + r * width; all its entries are to be written
 *       unsigned long long rows, lengths[8];
 *       unsigned widths[8], operands, weights, width, reserved;
 *   };
 *
 * The source is compiled when a model is loaded onto a card, by NVRTC, without a header of CUDA's. If it does not compile, that is
 * a line of the log, and bantam_plugin_op_run is called, for which rows go to the host and back; so it must be there always. A
 * kernel cannot fail: one that writes where it must not ends the server.
 */
BANTAM_PLUGIN_EXPORT int32_t bantam_plugin_op_infer(const uint8_t *request, size_t request_len, bantam_bytes *answer);

/* Makes what one node of a graph needs, from the same request: *op, of the plugin's own making. Returns 0 if it did. */
BANTAM_PLUGIN_EXPORT int32_t bantam_plugin_op_open(const uint8_t *request, size_t request_len, void **op);

/* Rows to be computed. Rows of an operand, and of the result, stand one after another. */
typedef struct bantam_op_rows {
    size_t rows;
    size_t operands;
    const float *const *x;  /* of each operand, rows × its width */
    const size_t *widths;   /* of each operand */
    size_t weights;
    const float *const *weight; /* of each weight, all of it */
    const size_t *lengths;      /* of each weight */
    float *out;                 /* rows × width, all to be written */
    size_t width;
} bantam_op_rows;

/*
 * Computes rows; returns 0 if it did. Several threads call it at once with the same op and different rows. A row must come
 * out the same, to the bit, whatever rows it comes with.
 */
BANTAM_PLUGIN_EXPORT int32_t bantam_plugin_op_run(const void *op, const bantam_op_rows *call);

/* Takes an op back, from any thread, when no call of it is left. */
BANTAM_PLUGIN_EXPORT void bantam_plugin_op_close(void *op);

#if defined(__wasm__)
/*
 * WebAssembly only: memory of so many bytes for a request, which the host writes there; 0 if there is none. After
 * bantam_plugin_build the host gives it back by bantam_plugin_free, in a bantam_bytes that it has put together.
 * bantam_bytes themselves, those for answers too, the host puts into memory that it had from here.
 */
BANTAM_PLUGIN_EXPORT void *bantam_plugin_alloc(size_t len);
#endif

#ifdef __cplusplus
}
#endif

#endif
