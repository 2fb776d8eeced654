/* A CUDA driver that has no GPU. It reports the properties of one, keeps the modules that are
 * loaded, and records what is launched. Kernels do not run, so their results are what the memory
 * held before: zeros at first. Copies are made, and addresses are checked. One kernel has a result,
 * because the engine ends a request without a token: `pick_kernel` picks token 1 for each row.
 *
 * It is built as `libcuda.so.1`, and its variables are:
 *
 * - STAND_IN_DEVICE: sm_80 (an A100), sm_90 (an H100, the default) or sm_100 (a B200).
 * - STAND_IN_LOG: a folder. A module is written to it as FNV.ptx, and calls to `calls.tsv`.
 *
 * Functions that the engine does not call are missing. The program that calls one says its name.
 * The numbers of attributes and errors are those of cuda.h.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    ILLEGAL_ADDRESS = 700,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    ILLEGAL_STATE = 401,
};

struct device {
    const char *key, *name;
    int major, minor, multiprocessors, shared_per_block, l2;
    size_t memory;
};

static const struct device DEVICES[] = {
    {"sm_80", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 166912, 40 << 20, 80ull << 30},
    {"sm_90", "NVIDIA H100 80GB HBM3", 9, 0, 132, 232448, 50 << 20, 80ull << 30},
    {"sm_100", "NVIDIA B200", 10, 0, 148, 232448, 126 << 20, 180ull << 30},
};

/* A module is its text. A kernel is a name in it. */
struct kernel {
    uint64_t module;
    char name[256];
    int dynamic_shared_max;
};

struct stream {
    int capturing, is_invalid;
    struct graph *graph;
    struct stream *next_capturing;
};

/* Kinds of nodes are those of CUgraphNodeType: 0 is a kernel, and 1 is a copy. */
struct graph {
    int *kinds;
    size_t len, capacity;
};

struct allocation {
    uintptr_t start;
    size_t len;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations;
static size_t num_allocations, allocations_capacity, allocated;
static struct stream *capturing;
static FILE *calls;

static const struct device *device(void) {
    const char *key = getenv("STAND_IN_DEVICE");
    for (size_t i = 0; key && i < sizeof DEVICES / sizeof *DEVICES; i++)
        if (!strcmp(DEVICES[i].key, key)) return &DEVICES[i];
    return &DEVICES[1];
}

static void record(const char *format, ...) {
    const char *folder = getenv("STAND_IN_LOG");
    if (!folder) return;
    pthread_mutex_lock(&lock);
    if (!calls) {
        char path[4096];
        snprintf(path, sizeof path, "%s/calls.tsv", folder);
        calls = fopen(path, "a");
    }
    if (calls) {
        va_list arguments;
        va_start(arguments, format);
        vfprintf(calls, format, arguments);
        va_end(arguments);
        fputc('\n', calls);
        fflush(calls);
    }
    pthread_mutex_unlock(&lock);
}

/* A recording is of the mode `global`: while it lasts, no thread may make a call that could wait
 * for the device, and loading a module is one. Such a call fails, and spoils the recordings. */
static int spoil_captures(void) {
    pthread_mutex_lock(&lock);
    int is_capturing = capturing != NULL;
    for (struct stream *one = capturing; one; one = one->next_capturing) one->is_invalid = 1;
    pthread_mutex_unlock(&lock);
    return is_capturing ? CAPTURE_UNSUPPORTED : SUCCESS;
}

/* Adds a node to the graph that is recorded. Returns whether there is one. */
static int captured(struct stream *stream, int kind) {
    if (!stream || !stream->capturing) return 0;
    struct graph *graph = stream->graph;
    if (graph->len == graph->capacity) {
        graph->capacity = graph->capacity ? 2 * graph->capacity : 64;
        graph->kinds = realloc(graph->kinds, graph->capacity * sizeof *graph->kinds);
    }
    graph->kinds[graph->len++] = kind;
    return 1;
}

static int is_allocated(uintptr_t start, size_t len) {
    int found = len == 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < num_allocations && !found; i++) {
        struct allocation *one = &allocations[i];
        found = start >= one->start && start + len <= one->start + one->len;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* --- Errors, the device and its context --- */

int cuGetErrorName(int error, const char **text) {
    static char name[32];
    snprintf(name, sizeof name, "error %d", error);
    *text = name;
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
    *text = "an error of the driver without a GPU (cuda.h names its number)";
    return (void)error, SUCCESS;
}

int cuInit(unsigned flags) { return (void)flags, SUCCESS; }

/* 13.0: the LLVM path emits the PTX version that the driver reads. */
int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }

int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }

int cuDeviceGet(int *handle, int ordinal) {
    if (ordinal != 0) return INVALID_DEVICE;
    return *handle = 0, SUCCESS;
}

int cuDeviceGetName(char *name, int len, int handle) {
    snprintf(name, (size_t)len, "%s", device()->name);
    return (void)handle, SUCCESS;
}

int cuDeviceGetPCIBusId(char *id, int len, int handle) {
    snprintf(id, (size_t)len, "0000:00:04.0");
    return (void)handle, SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int handle) {
    return *bytes = device()->memory, (void)handle, SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int handle) {
    (void)handle;
    switch (attribute) {
    case 1: *value = 1024; break;                        /* threads a block */
    case 2: case 3: *value = 1024; break;                /* block, x and y */
    case 4: *value = 64; break;                          /* block, z */
    case 5: *value = 2147483647; break;                  /* grid, x */
    case 6: case 7: *value = 65535; break;               /* grid, y and z */
    case 8: *value = 49152; break;                       /* static shared memory a block */
    case 10: *value = 32; break;                         /* warp */
    case 12: *value = 65536; break;                      /* registers a block */
    case 16: *value = device()->multiprocessors; break;
    case 38: *value = device()->l2; break;
    case 39: *value = 2048; break;                       /* threads a multiprocessor */
    case 75: *value = device()->major; break;
    case 76: *value = device()->minor; break;
    case 81: *value = device()->shared_per_block + 1024; break;
    case 97: *value = device()->shared_per_block; break; /* that a kernel may opt in to */
    case 115: *value = 1; break;                         /* memory pools */
    default: return INVALID_VALUE;
    }
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **context, int handle) {
    static int only;
    return *context = &only, (void)handle, SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int handle) { return (void)handle, SUCCESS; }
int cuCtxSetCurrent(void *context) { return (void)context, SUCCESS; }
int cuCtxSynchronize(void) { return SUCCESS; }

int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    return *least = 0, *greatest = -5, SUCCESS;
}

/* --- Memory: address space of the host, whose pages come when they are written --- */

static int allocate(uintptr_t *start, size_t len, struct stream *stream) {
    if (stream && stream->capturing) return CAPTURE_UNSUPPORTED;
    if (len == 0) return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    void *memory = MAP_FAILED;
    if (allocated + len <= device()->memory)
        memory = mmap(NULL, len, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) {
        if (num_allocations == allocations_capacity) {
            allocations_capacity = allocations_capacity ? 2 * allocations_capacity : 256;
            allocations = realloc(allocations, allocations_capacity * sizeof *allocations);
        }
        *start = (uintptr_t)memory;
        allocations[num_allocations++] = (struct allocation){*start, len};
        allocated += len;
    }
    pthread_mutex_unlock(&lock);
    record("alloc\t%zu\t%s", len, memory == MAP_FAILED ? "refused" : "ok");
    return memory == MAP_FAILED ? OUT_OF_MEMORY : SUCCESS;
}

static int release(uintptr_t start) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < num_allocations && !found; i++)
        if (allocations[i].start == start) {
            munmap((void *)start, allocations[i].len);
            allocated -= allocations[i].len;
            allocations[i] = allocations[--num_allocations];
            found = 1;
        }
    pthread_mutex_unlock(&lock);
    return found ? SUCCESS : INVALID_VALUE;
}

int cuMemAlloc_v2(uintptr_t *start, size_t len) {
    int error = spoil_captures();
    return error ? error : allocate(start, len, NULL);
}

int cuMemAllocAsync(uintptr_t *start, size_t len, struct stream *stream) {
    return allocate(start, len, stream);
}

int cuMemFree_v2(uintptr_t start) { return release(start); }
int cuMemFreeAsync(uintptr_t start, struct stream *stream) { return (void)stream, release(start); }

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    pthread_mutex_lock(&lock);
    *free_bytes = device()->memory - allocated;
    *total = device()->memory;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuMemAllocHost_v2(void **start, size_t len) {
    return *start = calloc(1, len), *start ? SUCCESS : OUT_OF_MEMORY;
}

int cuMemFreeHost(void *start) { return free(start), SUCCESS; }

/* Copies to and from the host do not become nodes here, because the engine records none. */
static int copy(const char *kind, void *to, const void *from, size_t len, struct stream *stream) {
    record("copy\t%s\t%zu", kind, len);
    if (stream && stream->is_invalid) return CAPTURE_INVALIDATED;
    if (captured(stream, 1)) return SUCCESS;
    memcpy(to, from, len);
    return SUCCESS;
}

int cuMemcpyHtoDAsync_v2(uintptr_t to, const void *from, size_t len, struct stream *stream) {
    if (!is_allocated(to, len)) return ILLEGAL_ADDRESS;
    return copy("to_device", (void *)to, from, len, stream);
}

int cuMemcpyDtoHAsync_v2(void *to, uintptr_t from, size_t len, struct stream *stream) {
    if (!is_allocated(from, len)) return ILLEGAL_ADDRESS;
    return copy("to_host", to, (const void *)from, len, stream);
}

int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t len, struct stream *stream) {
    if (!is_allocated(to, len) || !is_allocated(from, len)) return ILLEGAL_ADDRESS;
    return copy("on_device", (void *)to, (const void *)from, len, stream);
}

/* CUDA_MEMCPY2D_st; types of memory are 1 (host) and 2 (device). */
struct copy_2d {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    uintptr_t from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_type;
    void *to_host;
    uintptr_t to_device;
    void *to_array;
    size_t to_pitch, width, height;
};

int cuMemcpy2DAsync_v2(const struct copy_2d *request, struct stream *stream) {
    const char *from = request->from_type == 1 ? request->from_host : (const char *)request->from_device;
    char *to = request->to_type == 1 ? request->to_host : (char *)request->to_device;
    size_t height = request->height, width = request->width;
    if (height == 0 || width == 0) return SUCCESS;
    if (request->from_type == 2
        && !is_allocated((uintptr_t)from, (height - 1) * request->from_pitch + width))
        return ILLEGAL_ADDRESS;
    if (request->to_type == 2
        && !is_allocated((uintptr_t)to, (height - 1) * request->to_pitch + width))
        return ILLEGAL_ADDRESS;
    record("copy\trows\t%zu", width * height);
    if (stream && stream->is_invalid) return CAPTURE_INVALIDATED;
    if (captured(stream, 1)) return SUCCESS;
    for (size_t row = 0; row < height; row++)
        memcpy(to + row * request->to_pitch, from + row * request->from_pitch, width);
    return SUCCESS;
}

/* --- Streams and events. All work is done when it is given --- */

int cuStreamCreate(struct stream **stream, unsigned flags) {
    return *stream = calloc(1, sizeof **stream), (void)flags, SUCCESS;
}

int cuStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority) {
    return (void)priority, cuStreamCreate(stream, flags);
}

int cuStreamDestroy_v2(struct stream *stream) { return free(stream), SUCCESS; }

int cuStreamSynchronize(struct stream *stream) {
    return stream && stream->capturing ? CAPTURE_UNSUPPORTED : SUCCESS;
}

int cuStreamWaitEvent(struct stream *stream, void *event, unsigned flags) {
    return (void)stream, (void)event, (void)flags, SUCCESS;
}

int cuEventCreate(void **event, unsigned flags) {
    return *event = malloc(1), (void)flags, SUCCESS;
}

int cuEventDestroy_v2(void *event) { return free(event), SUCCESS; }
int cuEventRecord(void *event, struct stream *stream) { return (void)event, (void)stream, SUCCESS; }
int cuEventSynchronize(void *event) { return (void)event, SUCCESS; }
int cuEventQuery(void *event) { return (void)event, SUCCESS; }

/* Equal times: nothing that is measured here means anything. */
static int elapsed(float *milliseconds) { return *milliseconds = 0.01f, SUCCESS; }
int cuEventElapsedTime(float *t, void *from, void *to) { return (void)from, (void)to, elapsed(t); }
int cuEventElapsedTime_v2(float *t, void *from, void *to) { return (void)from, (void)to, elapsed(t); }

/* --- Modules and launches --- */

int cuModuleLoadData(uint64_t *module, const char *image) {
    const char *folder = getenv("STAND_IN_LOG"), *entry = strstr(image, ".entry ");
    uint64_t fnv = 14695981039346656037ull;
    for (const char *byte = image; *byte; byte++) fnv = (fnv ^ (unsigned char)*byte) * 1099511628211ull;
    *module = fnv;
    if (!entry) return INVALID_IMAGE;
    int error = spoil_captures(), len = (int)strcspn(entry + 7, "( \n");
    record("module\t%016" PRIx64 "\t%.*s\t%s", fnv, len, entry + 7, error ? "refused" : "loaded");
    if (error) return error;
    if (folder) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%016" PRIx64 ".ptx", folder, fnv);
        FILE *file = fopen(path, "w");
        if (!file) return INVALID_VALUE;
        fputs(image, file);
        fclose(file);
    }
    return SUCCESS;
}

int cuModuleUnload(uint64_t module) { return (void)module, SUCCESS; }

int cuModuleGetFunction(struct kernel **kernel, uint64_t module, const char *name) {
    *kernel = calloc(1, sizeof **kernel);
    (*kernel)->module = module;
    (*kernel)->dynamic_shared_max = 49152;
    snprintf((*kernel)->name, sizeof (*kernel)->name, "%s", name);
    record("kernel\t%016" PRIx64 "\t%s", module, name);
    return SUCCESS;
}

/* Attribute 8 is the most dynamic shared memory of a launch. */
int cuFuncSetAttribute(struct kernel *kernel, int attribute, int value) {
    if (attribute == 8) {
        if (value > device()->shared_per_block) return INVALID_VALUE;
        kernel->dynamic_shared_max = value > 49152 ? value : 49152;
    }
    return SUCCESS;
}

/* The fifth buffer of `pick_kernel` has three words a row: 0 (a token was picked), the token, 0. */
static void pick(void **parameters, size_t rows) {
    uintptr_t picks = *(uintptr_t *)parameters[4];
    for (size_t row = 0; row < rows; row++) {
        uint32_t *words = (uint32_t *)picks + 3 * row;
        if (!is_allocated((uintptr_t)words, 12)) return;
        words[0] = 0, words[1] = 1, words[2] = 0;
    }
}

int cuLaunchKernel(struct kernel *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   struct stream *stream, void **parameters, void **extra) {
    (void)extra;
    uint64_t threads = (uint64_t)block_x * block_y * block_z;
    if (stream && stream->is_invalid) return CAPTURE_INVALIDATED;
    int is_valid = grid_x && grid_y && grid_z && threads && threads <= 1024 && block_z <= 64
                   && grid_x <= 2147483647u && grid_y <= 65535 && grid_z <= 65535
                   && shared <= (unsigned)kernel->dynamic_shared_max;
    int is_captured = is_valid && captured(stream, 0);
    if (is_valid && !strncmp(kernel->name, "pick_kernel", 11))
        pick(parameters, (size_t)grid_x * grid_y * grid_z);
    record("launch\t%016" PRIx64 "\t%s\t%ux%ux%u\t%ux%ux%u\t%u\t%s", kernel->module, kernel->name,
           grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
           !is_valid ? "refused" : is_captured ? "captured" : "launched");
    return is_valid ? SUCCESS : INVALID_VALUE;
}

/* --- Tensor maps --- */

/* Bytes of an element, by CUtensorMapDataType. */
static const size_t ELEMENTS[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

/* The limits of cuda.h for maps that are not interleaved, which the engine's are. The map's 128
 * bytes are opaque, and no kernel reads them here. */
int cuTensorMapEncodeTiled(void *map, unsigned type, unsigned rank, uintptr_t start,
                           const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *steps, int interleave, int swizzle, int promotion,
                           int fill) {
    (void)promotion, (void)fill;
    if (type >= sizeof ELEMENTS / sizeof *ELEMENTS || rank < 1 || rank > 5 || interleave != 0
        || device()->major < 9 || start % 16 || !is_allocated(start, 1))
        return INVALID_VALUE;
    for (unsigned i = 0; i < rank; i++) {
        if (!dims[i] || dims[i] > 1ull << 32 || !box[i] || box[i] > 256 || !steps[i] || steps[i] > 8)
            return INVALID_VALUE;
        if (i + 1 < rank && (strides[i] % 16 || strides[i] >= 1ull << 40)) return INVALID_VALUE;
    }
    size_t inner = box[0] * ELEMENTS[type];
    size_t inner_max = swizzle == 0 ? SIZE_MAX : swizzle < 3 ? 16u << swizzle : 128;
    if (inner % 16 || inner > inner_max) return INVALID_VALUE;
    memset(map, 0, 128);
    record("tensor_map\t%ux%u", box[0], rank > 1 ? box[1] : 1);
    return SUCCESS;
}

/* --- Graphs --- */

int cuStreamBeginCapture_v2(struct stream *stream, int mode) {
    (void)mode;
    if (stream->capturing) return ILLEGAL_STATE;
    stream->capturing = 1;
    stream->graph = calloc(1, sizeof *stream->graph);
    pthread_mutex_lock(&lock);
    stream->next_capturing = capturing;
    capturing = stream;
    pthread_mutex_unlock(&lock);
    record("capture\tbegin");
    return SUCCESS;
}

int cuStreamEndCapture(struct stream *stream, struct graph **graph) {
    if (!stream->capturing) return ILLEGAL_STATE;
    pthread_mutex_lock(&lock);
    struct stream **link = &capturing;
    while (*link && *link != stream) link = &(*link)->next_capturing;
    if (*link) *link = stream->next_capturing;
    int is_invalid = stream->is_invalid;
    stream->capturing = stream->is_invalid = 0;
    pthread_mutex_unlock(&lock);
    *graph = is_invalid ? NULL : stream->graph;
    if (is_invalid) {
        free(stream->graph->kinds);
        free(stream->graph);
        record("capture\tinvalid");
        return CAPTURE_INVALIDATED;
    }
    record("capture\tend\t%zu", (*graph)->len);
    return SUCCESS;
}

int cuGraphGetNodes(struct graph *graph, uintptr_t *nodes, size_t *len) {
    if (nodes)
        for (size_t i = 0; i < *len && i < graph->len; i++) nodes[i] = (uintptr_t)&graph->kinds[i];
    else
        *len = graph->len;
    return SUCCESS;
}

int cuGraphNodeGetType(uintptr_t node, int *kind) { return *kind = *(int *)node, SUCCESS; }

/* An executable graph is the number of its nodes. */
int cuGraphInstantiateWithFlags(size_t **exec, struct graph *graph, uint64_t flags) {
    *exec = malloc(sizeof **exec);
    **exec = graph->len;
    return (void)flags, SUCCESS;
}

int cuGraphUpload(size_t *exec, struct stream *stream) { return (void)exec, (void)stream, SUCCESS; }

int cuGraphLaunch(size_t *exec, struct stream *stream) {
    (void)stream;
    record("graph\t%zu", *exec);
    return SUCCESS;
}

int cuGraphExecDestroy(size_t *exec) { return free(exec), SUCCESS; }
int cuGraphDestroy(struct graph *graph) { return free(graph->kinds), free(graph), SUCCESS; }
