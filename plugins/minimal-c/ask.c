/*
 * Asks any plugin, from the command line:
 *
 *   ask PLUGIN.so                 who it is
 *   ask PLUGIN.so REQUEST…        the answer to each of these files, a line each
 */
#define _POSIX_C_SOURCE 200809L

#include "../bantam_plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *symbol(void *plugin, const char *name) {
    void *found = dlsym(plugin, name);
    if (found == NULL) {
        fprintf(stderr, "ask: the plugin exports no %s\n", name);
        exit(1);
    }
    return found;
}

/* The whole of a file; NULL if it cannot be read. */
static uint8_t *read_file(const char *path, size_t *len) {
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = NULL;
    *len = 0;
    if (file == NULL) return NULL;
    for (size_t room = 1 << 16;; room *= 2) {
        uint8_t *more = realloc(bytes, room);
        if (more == NULL) break;
        bytes = more;
        *len += fread(bytes + *len, 1, room - *len, file);
        if (*len < room) break;
    }
    fclose(file);
    return bytes;
}

int main(int argc, char **argv) {
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (plugin == NULL) {
        fprintf(stderr, "ask: %s\n", argc > 1 ? dlerror() : "usage: ask PLUGIN.so [REQUEST...]");
        return 1;
    }
    /* ISO C knows no way from an object pointer to a function; POSIX does. */
    union { void *object; uint32_t (*call)(void); } abi = {symbol(plugin, "bantam_plugin_abi")};
    union { void *object; int32_t (*call)(bantam_bytes *); } describe = {symbol(plugin, "bantam_plugin_describe")};
    union { void *object; int32_t (*call)(const uint8_t *, size_t, bantam_bytes *); } build = {
        symbol(plugin, "bantam_plugin_build")};
    union { void *object; void (*call)(bantam_bytes *); } give_back = {symbol(plugin, "bantam_plugin_free")};
    if (abi.call() != BANTAM_PLUGIN_ABI) {
        fprintf(stderr, "ask: the plugin is of version %u, expected %u\n", abi.call(), BANTAM_PLUGIN_ABI);
        return 1;
    }
    for (int i = 2; i < argc || i == 2; i++) {
        bantam_bytes answer = {NULL, 0};
        size_t len = 0;
        uint8_t *request = argc > 2 ? read_file(argv[i], &len) : NULL;
        int32_t status = argc > 2 ? build.call(request, len, &answer) : describe.call(&answer);
        free(request);
        if (status != 0) {
            fprintf(stderr, "ask: the plugin gave no answer (%d)\n", (int)status);
            return 1;
        }
        fwrite(answer.data, 1, answer.len, stdout);
        putchar('\n');
        give_back.call(&answer);
    }
    dlclose(plugin);
    return 0;
}
