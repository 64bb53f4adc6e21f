/* libnvidia-ml.so.1 as far as it is asked here, in the words of nvml.h: GPUs that NVML_* variables describe.
 * NVML_GPUS (2), NVML_LOST (an index), NVML_SLICES (0), NVML_PLAIN (only what every GPU answers), NVML_XID (an event),
 * NVML_LINKED (2: how many neighbouring GPUs NVLink joins; the others meet at a socket, four GPUs to a socket). */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10,
       LOST = 15, VERSION = 25 };
typedef struct { unsigned index, slice; } Device; /* slice: 1 and on */
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory_v2;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu, compute; } Process;
typedef struct { unsigned field, scope; long long at, latency; unsigned kind; int result;
                 union { double d; unsigned u; unsigned long long ull; } value; } Field;
typedef struct { Device *device; unsigned long long kind, data; unsigned gpu, compute; } Event;

static int opened, told;
static Device devices[16][8];

static int number(const char *name, int otherwise) { const char *text = getenv(name); return text ? atoi(text) : otherwise; }
static int gpus(void) { return number("NVML_GPUS", 2); }
static int fault(Device *device) {
    if (!opened) return UNINITIALIZED;
    if (!device) return INVALID;
    return (int)device->index == number("NVML_LOST", -1) ? LOST : OK;
}
/* What a slice, or a GPU of another kind, is not asked. */
static int optional(Device *device) {
    int failed = fault(device);
    return failed ? failed : device->slice || getenv("NVML_PLAIN") ? NOT_SUPPORTED : OK;
}
#define ANSWER(allowed, ...) { int failed = allowed; if (failed) return failed; __VA_ARGS__; return OK; }

int nvmlInit(void) { opened++; return OK; }
int nvmlInit_v2(void) { return nvmlInit(); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit(); }
int nvmlShutdown(void) { if (!opened) return UNINITIALIZED; opened--; return OK; }
int nvml_opened(void) { return opened; }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : code == NOT_SUPPORTED ? "Not Supported" : "Error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) ANSWER(opened && size >= 80 ? OK : INVALID, strcpy(out, "580.159.04"))
int nvmlDeviceGetCount_v2(unsigned *count) ANSWER(opened ? OK : UNINITIALIZED, *count = gpus())
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    if (!opened) return UNINITIALIZED;
    if ((int)index >= gpus()) return INVALID;
    *out = &devices[index][0];
    (*out)->index = index;
    return fault(*out);
}
static void uuid(Device *device, char *out) {
    if (device->slice) sprintf(out, "MIG-%08x-0000-0000-0000-00000000000%x", device->index, device->slice);
    else sprintf(out, "GPU-%08x-0000-0000-0000-000000000000", device->index);
}
int nvmlDeviceGetUUID(Device *device, char *out, unsigned size) ANSWER(size < 80 ? INSUFFICIENT_SIZE : fault(device), uuid(device, out))
int nvmlDeviceGetHandleByUUID(const char *name, Device **out) {
    char own[96];
    for (int index = 0; index < gpus(); index++)
        if (!nvmlDeviceGetHandleByIndex_v2(index, out) && (uuid(*out, own), !strcmp(own, name))) return OK;
    return NOT_FOUND;
}
int nvmlDeviceGetIndex(Device *device, unsigned *out) ANSWER(fault(device), *out = device->index)
int nvmlDeviceGetName(Device *device, char *out, unsigned size)
    ANSWER(size < 64 ? INSUFFICIENT_SIZE : fault(device), strcpy(out, device->slice ? "NVIDIA H100 80GB HBM3 MIG 1g.10gb" : "NVIDIA H100 80GB HBM3"))
int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) ANSWER(fault(device), *major = 9, *minor = 0)
int nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *next) ANSWER(optional(device), *now = *next = number("NVML_SLICES", 0) > 0)
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *out) ANSWER(fault(device), *out = 7)
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned place, Device **out) {
    if ((int)place >= number("NVML_SLICES", 0)) return NOT_FOUND;
    *out = &devices[device->index][place + 1];
    (*out)->index = device->index;
    (*out)->slice = place + 1;
    return OK;
}
int nvmlDeviceGetP2PStatus(Device *one, Device *other, int kind, int *out) {
    unsigned each = number("NVML_LINKED", 2);
    if (kind != 2) return INVALID; /* NVML_P2P_CAPS_INDEX_NVLINK */
    ANSWER(optional(one) ? optional(one) : optional(other), *out = one->index / each == other->index / each ? 0 : 5)
}
int nvmlDeviceGetTopologyCommonAncestor(Device *one, Device *other, int *out)
    ANSWER(optional(one) ? optional(one) : optional(other), *out = one->index / 4 == other->index / 4 ? 40 : 50)
int nvmlDeviceGetCpuAffinity(Device *device, unsigned words, unsigned long *out)
    ANSWER(words < 1 ? INVALID : optional(device), memset(out, 0, 8 * words); out[0] = device->index < 4 ? 0x3 : 0xc)
int nvmlDeviceGetPersistenceMode(Device *device, unsigned *out) ANSWER(optional(device), *out = 1)
int nvmlDeviceGetMemoryInfo(Device *device, Memory *out) ANSWER(fault(device), *out = ((Memory){80ull << 30, 78ull << 30, 2ull << 30}))
int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory_v2 *out) {
    if (out->version != (sizeof(Memory_v2) | 2u << 24)) return VERSION;
    ANSWER(optional(device), *out = ((Memory_v2){out->version, 80ull << 30, 1ull << 30, 78ull << 30, 1ull << 30}))
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *out) {
    int failed = fault(device), room = *count;
    if (failed) return failed;
    *count = 2;
    if (room < 2) return INSUFFICIENT_SIZE;
    out[0] = (Process){4242, 1ull << 29, -1u, -1u};
    out[1] = (Process){4243, -1ull, -1u, -1u}; /* of a container: its memory is not told */
    return OK;
}
int nvmlDeviceGetRemappedRows(Device *device, unsigned *a, unsigned *b, unsigned *c, unsigned *failed_) ANSWER(optional(device), *a = *b = *c = *failed_ = 0)
int nvmlEventSetCreate(int **out) ANSWER(opened ? OK : UNINITIALIZED, *out = &told)
int nvmlEventSetFree(int *set) ANSWER(set ? OK : INVALID, *set = 0)
int nvmlDeviceRegisterEvents(Device *device, unsigned long long kinds, int *set) ANSWER(kinds == 8 && set ? optional(device) : INVALID, ;)
int nvmlEventSetWait_v2(int *set, Event *out, unsigned timeout) {
    (void)timeout;
    if (*set || number("NVML_XID", 0) == 0) return TIMEOUT;
    *set = 1;
    *out = (Event){&devices[0][0], 8, number("NVML_XID", 0), -1u, -1u};
    return OK;
}
int nvmlDeviceGetTotalEccErrors(Device *device, int kind, int counter, unsigned long long *out) ANSWER(kind == 1 && counter == 0 ? optional(device) : INVALID, *out = 0)
int nvmlDeviceGetUtilizationRates(Device *device, unsigned *out) ANSWER(optional(device), out[0] = 25, out[1] = 10)
int nvmlDeviceGetClockInfo(Device *device, int kind, unsigned *out) ANSWER(kind == 1 ? optional(device) : INVALID, *out = 1929)
int nvmlDeviceGetMaxClockInfo(Device *device, int kind, unsigned *out) ANSWER(kind == 1 ? optional(device) : INVALID, *out = 1980)
int nvmlDeviceGetPowerUsage(Device *device, unsigned *out) ANSWER(optional(device), *out = 350500)
int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *out) ANSWER(optional(device), *out = 7500)
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *out) ANSWER(optional(device), *out = 4)
int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *out) ANSWER(sensor == 0 ? optional(device) : INVALID, *out = 61)
int nvmlDeviceGetFieldValues(Device *device, int count, Field *out) {
    static unsigned long long calls;
    int failed = optional(device);
    calls++;
    for (int i = 0; !failed && i < count; i++) {
        int link = out[i].field == 138 || out[i].field == 139;
        out[i].result = link ? (out[i].scope == -1u ? OK : INVALID) : out[i].field == 197 || out[i].field == 198 ? OK : NOT_SUPPORTED;
        out[i].kind = link ? 3 : 1; /* NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, ..._INT */
        if (link) out[i].value.ull = 10 * calls; /* KiB */
        else out[i].value.u = -2000u + 1500u * (unsigned)calls; /* bytes, and it begins again at 0 */
    }
    return failed;
}
