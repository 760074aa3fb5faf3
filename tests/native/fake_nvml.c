/*
 * A stand-in for NVIDIA's libnvidia-ml.so.1, driven by files, for tests without a GPU. No NVIDIA header is needed.
 *
 * FAKE_NVML_DIR holds one folder a GPU (gpu0, gpu1, ...), and in it one file a value, named as the NVML function
 * less "nvmlDeviceGet" and version suffix: gpu0/Temperature, gpu3/RemappedRows. Files of the folder itself count for
 * every GPU that has none of its own. A file holds numbers or a string, read anew at each call; before them may stand
 *   !N         return NVML error N             gpu2/Temperature: "!15" = GPU is lost
 *   ~N         sleep N milliseconds first      gpu2/Temperature: "~5000 40" = a slow driver
 *   ~forever   never return                    gpu2/Temperature: "~forever" = a hung driver
 * A file named "all" in a GPU's folder applies to its every call, the look-up of its handle too; "HandleByIndex" to
 * that look-up alone. No file: a healthy H100. "count" sets the number of GPUs (default: the gpuN folders). "Init"
 * works likewise, for nvmlInit. Touching "reload" voids the initialisation, as a reload of the driver does.
 * Events: each line "GPU TYPE DATA" appended to FAKE_NVML_DIR/events ("0 8 79": an XID 79 on gpu0) reaches every
 * event set that registered that GPU and type, and was made before.
 * "excluded" holds the PCI addresses of GPUs that the driver leaves out. As the real library keeps /dev/nvidiactl and
 * /dev/nvidiaN open from its start to its shutdown, this one keeps FAKE_NVML_DIR and the folder of each GPU that it
 * gave a handle of open: /proc/PID/fd shows it.
 * FAKE_NVML_STILL: PCI addresses, one a GPU, separated by blanks. Then no file is read but to count the GPUs, and all
 * are healthy: for measuring those who ask.
 * A function that a driver lacks is left out when linking: see nvml_library.py.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, VERSION_MISMATCH = 25 };
#define MAX_GPUS 64
typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct gpu { int n; } *Device;
typedef struct { int used; long offset; u64 types[MAX_GPUS]; } EventSet;
typedef struct { Device device; u64 type, data; u32 gi, ci; } EventData;
typedef struct { char legacy[16]; u32 domain, bus, device, id, sub; char bus_id[32]; } PciInfo;
typedef struct { PciInfo pci; char uuid[80]; } Excluded;
typedef struct { u32 field, scope; long long at, latency; u32 type; int ret; union { u64 u; double d; } v; } FieldValue;

static struct gpu gpus[MAX_GPUS];
static int inits;
static int held[MAX_GPUS + 1]; /* open files, plus one: of each GPU, and at last of the driver */

static void hold(int which) {
    char path[4096];
    const char *dir = getenv("FAKE_NVML_DIR");
    if (!dir || held[which]) return;
    snprintf(path, sizeof path, which < MAX_GPUS ? "%s/gpu%d" : "%s", dir, which);
    held[which] = open(path, O_RDONLY | O_CLOEXEC) + 1;
}

static void let_go(void) {
    for (int i = 0; i <= MAX_GPUS; i++) {
        if (held[i]) close(held[i] - 1);
        held[i] = 0;
    }
}

static void wait_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static const char *still(void) { return getenv("FAKE_NVML_STILL"); }

/* Puts the address of a GPU into buf. */
static void still_address(int gpu, char *buf, size_t size) {
    const char *p = still();
    for (p += strspn(p, " "); gpu-- > 0; p += strspn(p, " ")) p += strcspn(p, " ");
    snprintf(buf, size, "0000%.*s", (int)strcspn(p, " "), p);
}

/* Reads one value file into buf, the default where there is none, and obeys its marks. */
static int value(int gpu, const char *name, const char *fallback, char *buf, size_t size) {
    const char *dir = still() ? NULL : getenv("FAKE_NVML_DIR");
    char path[4096], *p = buf, *end;
    FILE *f = NULL;
    if (dir && gpu >= 0) {
        snprintf(path, sizeof path, "%s/gpu%d/%s", dir, gpu, name);
        f = fopen(path, "r");
    }
    if (dir && !f) {
        snprintf(path, sizeof path, "%s/%s", dir, name);
        f = fopen(path, "r");
    }
    snprintf(buf, size, "%s", fallback);
    if (gpu >= 0 && still() && !strcmp(name, "PciInfo")) still_address(gpu, buf, size);
    if (f) {
        size_t n = fread(buf, 1, size - 1, f);
        buf[n] = 0;
        buf[strcspn(buf, "\n")] = 0;
        fclose(f);
    }
    while (*p == '~' || *p == '!') {
        if (!strncmp(p, "~forever", 8)) for (;;) pause();
        long n = strtol(p + 1, &end, 10);
        if (*p == '!') return n;
        wait_ms(n);
        for (p = end; *p == ' '; p++) {}
    }
    if (p != buf) memmove(buf, *p ? p : fallback, strlen(*p ? p : fallback) + 1);
    return OK;
}

/* A reload of the driver voids every initialisation made before it. */
static int up(void) {
    const char *dir = getenv("FAKE_NVML_DIR");
    char path[4096];
    if (still()) return inits;
    snprintf(path, sizeof path, "%s/reload", dir ? dir : "/nonexistent");
    if (inits && !unlink(path)) inits = 0;
    return inits;
}

static int get(Device d, const char *name, const char *fallback, char *buf, size_t size) {
    char all[64];
    int r;
    if (!up()) return UNINITIALIZED;
    if (!d) return INVALID_ARGUMENT;
    if ((r = value(d->n, "all", "", all, sizeof all))) return r;
    return value(d->n, name, fallback, buf, size);
}

/* n numbers, u32 or u64. */
static int numbers(Device d, const char *name, const char *fallback, int n, int wide, ...) {
    char buf[1024], *p = buf;
    va_list ap;
    int r = get(d, name, fallback, buf, sizeof buf);
    if (r) return r;
    va_start(ap, wide);
    while (n--) {
        void *out = va_arg(ap, void *);
        u64 v = strtoull(p, &p, 0);
        if (!out) continue;
        if (wide) *(u64 *)out = v; else *(u32 *)out = v;
    }
    va_end(ap);
    return OK;
}

static int string(Device d, const char *name, const char *fallback, char *out, u32 size) {
    char buf[1024];
    int r = get(d, name, fallback, buf, sizeof buf);
    if (r) return r;
    if (strlen(buf) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, buf);
    return OK;
}

int nvmlInitWithFlags(u32 flags) {
    char buf[64];
    int r = value(-1, "Init", "", buf, sizeof buf);
    (void)flags;
    if (r) return r;
    inits++;
    hold(MAX_GPUS);
    for (int i = 0; i < MAX_GPUS; i++) gpus[i].n = i;
    return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
    if (!inits) return UNINITIALIZED;
    if (!--inits) let_go();
    return OK;
}
const char *nvmlErrorString(int r) { return r == OK ? "Success" : "Fake NVML error"; }

static int system_string(const char *name, const char *fallback, char *out, u32 size) {
    char buf[256];
    int r = inits ? value(-1, name, fallback, buf, sizeof buf) : UNINITIALIZED;
    if (!r) snprintf(out, size, "%s", buf);
    return r;
}
int nvmlSystemGetDriverVersion(char *s, u32 n) { return system_string("DriverVersion", "580.95.05", s, n); }
int nvmlSystemGetNVMLVersion(char *s, u32 n) { return system_string("NVMLVersion", "13.580.95.05", s, n); }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return inits ? OK : UNINITIALIZED; }

int nvmlDeviceGetCount_v2(u32 *count) {
    char buf[64], path[4096];
    const char *dir = getenv("FAKE_NVML_DIR");
    int r = up() ? value(-1, "count", "", buf, sizeof buf) : UNINITIALIZED, n = 0;
    if (r) return r;
    if (buf[0]) return *count = atoi(buf), OK;
    for (; dir && n < MAX_GPUS; n++) {
        snprintf(path, sizeof path, "%s/gpu%d", dir, n);
        if (access(path, F_OK)) break;
    }
    return *count = n, OK;
}
int nvmlDeviceGetHandleByIndex_v2(u32 i, Device *d) {
    u32 n;
    char all[64];
    int r = nvmlDeviceGetCount_v2(&n);
    if (!r && i >= n) r = INVALID_ARGUMENT;
    if (!r) r = value(i, "all", "", all, sizeof all);
    if (!r) r = value(i, "HandleByIndex", "", all, sizeof all);
    if (!r) *d = &gpus[i], hold(i);
    return r;
}
/* A file with one address a GPU. */
static int excluded(u32 index, char *address, size_t size) {
    char buf[1024], *p, *rest = buf;
    u32 n = 0;
    if (value(-1, "excluded", "", buf, sizeof buf)) return 0;
    while ((p = strtok_r(rest, " ", &rest))) if (n++ == index && address) snprintf(address, size, "%s", p);
    return n;
}
int nvmlGetExcludedDeviceCount(u32 *count) { return inits ? (*count = excluded(0, NULL, 0), OK) : UNINITIALIZED; }
int nvmlGetExcludedDeviceInfoByIndex(u32 index, Excluded *info) {
    char buf[32] = "";
    if (!inits) return UNINITIALIZED;
    memset(info, 0, sizeof *info);
    if ((int)index >= excluded(index, buf, sizeof buf)) return INVALID_ARGUMENT;
    snprintf(info->pci.bus_id, sizeof info->pci.bus_id, "%s", buf);
    snprintf(info->uuid, sizeof info->uuid, "GPU-excluded-%u", index);
    return OK;
}
int nvmlDeviceGetIndex(Device d, u32 *v) { return d ? (*v = d->n, OK) : INVALID_ARGUMENT; }

#define FALLBACK(...) char def[128]; snprintf(def, sizeof def, __VA_ARGS__)
int nvmlDeviceGetUUID(Device d, char *s, u32 n) {
    FALLBACK("GPU-00000000-0000-4000-8000-%012d", d ? d->n : 0);
    return string(d, "UUID", def, s, n);
}
int nvmlDeviceGetSerial(Device d, char *s, u32 n) {
    FALLBACK("16500000000%02d", d ? d->n : 0);
    return string(d, "Serial", def, s, n);
}
int nvmlDeviceGetPciInfo_v3(Device d, PciInfo *p) {
    char buf[32];
    FALLBACK("00000000:%02X:00.0", 0x1a + 0x10 * (d ? d->n : 0));
    int r = string(d, "PciInfo", def, buf, sizeof buf);
    if (r) return r;
    memset(p, 0, sizeof *p);
    strcpy(p->bus_id, buf);
    snprintf(p->legacy, sizeof p->legacy, "%.12s", strlen(buf) > 12 ? buf + strlen(buf) - 12 : buf);
    sscanf(buf, "%x:%x:%x", &p->domain, &p->bus, &p->device);
    p->id = 0x233010de, p->sub = 0x16c110de;
    return OK;
}
static const char *last12(const char *s) { return strlen(s) > 12 ? s + strlen(s) - 12 : s; }
/* Looks into the library's own list: the other GPUs are not touched. */
static int find(const char *want, Device *d, int by_uuid) {
    u32 n = 0;
    char have[96];
    int r = nvmlDeviceGetCount_v2(&n);
    for (u32 i = 0; !r && i < n; i++) {
        char def[128];
        snprintf(def, sizeof def, by_uuid ? "GPU-00000000-0000-4000-8000-%012u" : "00000000:%02X:00.0", by_uuid ? i : 0x1a + 0x10 * i);
        if (value(i, by_uuid ? "UUID" : "PciInfo", def, have, sizeof have)) continue;
        if (by_uuid ? strcmp(have, want) : strcasecmp(last12(have), last12(want))) continue;
        if (!(r = value(i, "all", "", have, sizeof have))) *d = &gpus[i], hold(i);
        return r;
    }
    return r ? r : NOT_FOUND;
}
int nvmlDeviceGetHandleByUUID(const char *s, Device *d) { return find(s, d, 1); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *s, Device *d) { return find(s, d, 0); }

#define STRING(F, DEF) int nvmlDeviceGet##F(Device d, char *s, u32 n) { return string(d, #F, DEF, s, n); }
#define U32(F, SUFFIX, DEF) int nvmlDeviceGet##F##SUFFIX(Device d, u32 *v) { return numbers(d, #F, DEF, 1, 0, v); }
#define U64(F, DEF) int nvmlDeviceGet##F(Device d, u64 *v) { return numbers(d, #F, DEF, 1, 1, v); }
#define PAIR(F, DEF) int nvmlDeviceGet##F(Device d, u32 *a, u32 *b) { return numbers(d, #F, DEF, 2, 0, a, b); }
/* One value for each argument: Temperature takes a sensor, file Temperature is sensor 0, Temperature.1 sensor 1. */
#define ARG(F, OUT, WIDE, DEF)                                                                                \
    int nvmlDeviceGet##F(Device d, u32 arg, OUT *v) {                                                         \
        char name[64];                                                                                        \
        snprintf(name, sizeof name, arg ? #F ".%u" : #F, arg);                                                \
        return numbers(d, name, DEF, 1, WIDE, v);                                                             \
    }
STRING(Name, "NVIDIA H100 80GB HBM3") STRING(VbiosVersion, "96.00.89.00.01") STRING(BoardPartNumber, "692-2G520-0200-000")
U32(PersistenceMode, , "1") U32(ComputeMode, , "0") U32(PowerUsage, , "95000") U32(EnforcedPowerLimit, , "700000")
U32(PerformanceState, , "0") U32(PcieReplayCounter, , "0") U32(RetiredPagesPendingStatus, , "0")
U32(CurrPcieLinkGeneration, , "5") U32(MaxPcieLinkGeneration, , "5") U32(CurrPcieLinkWidth, , "16")
U32(MaxPcieLinkWidth, , "16") U32(PcieSpeed, , "32000") U32(NumaNodeId, , "0")
U64(CurrentClocksEventReasons, "1") U64(CurrentClocksThrottleReasons, "1") U64(SupportedEventTypes, "0x19")
U64(TotalEnergyConsumption, "0")
PAIR(EccMode, "1 1") PAIR(MigMode, "0 0")
ARG(Temperature, u32, 0, "34") ARG(TemperatureThreshold, u32, 0, "90") ARG(ClockInfo, u32, 0, "1980")
ARG(MaxClockInfo, u32, 0, "1980") ARG(NvLinkVersion, u32, 0, "7")
#define LINKS 18
int nvmlDeviceGetNvLinkState(Device d, u32 link, u32 *v) {
    char name[64];
    snprintf(name, sizeof name, link ? "NvLinkState.%u" : "NvLinkState", link);
    return link < LINKS ? numbers(d, name, "1", 1, 0, v) : INVALID_ARGUMENT;
}
int nvmlDeviceGetMinorNumber(Device d, u32 *v) {
    FALLBACK("%d", d ? d->n : 0);
    return numbers(d, "MinorNumber", def, 1, 0, v);
}
int nvmlDeviceGetTotalEccErrors(Device d, int error, int counter, u64 *v) {
    char name[64]; /* TotalEccErrors.uncorrected.volatile ... */
    snprintf(name, sizeof name, "TotalEccErrors.%s.%s", error ? "uncorrected" : "corrected", counter ? "aggregate" : "volatile");
    return numbers(d, name, "0", 1, 1, v);
}
int nvmlDeviceGetMemoryErrorCounter(Device d, int error, int counter, int where, u64 *v) {
    char name[64];
    snprintf(name, sizeof name, "MemoryErrorCounter.%s.%s.%d", error ? "uncorrected" : "corrected", counter ? "aggregate" : "volatile", where);
    return numbers(d, name, "0", 1, 1, v);
}
int nvmlDeviceGetRemappedRows(Device d, u32 *corr, u32 *unc, u32 *pending, u32 *failed) {
    return numbers(d, "RemappedRows", "0 0 0 0", 4, 0, corr, unc, pending, failed);
}
int nvmlDeviceGetRowRemapperHistogram(Device d, u32 *v) { /* max high partial low none */
    return numbers(d, "RowRemapperHistogram", "640 0 0 0 0", 5, 0, v, v + 1, v + 2, v + 3, v + 4);
}
int nvmlDeviceValidateInforom(Device d) { return numbers(d, "ValidateInforom", "", 0, 0); }
int nvmlDeviceGetMarginTemperature(Device d, u32 *v) { return numbers(d, "MarginTemperature", "53", 1, 0, v + 1); }
/* Version 1: the version, twelve counters of 64 bits, the threshold flag. */
int nvmlDeviceGetSramEccErrorStatus(Device d, u64 *v) { /* parity secded threshold, those since the last reset */
    u32 *flag = (u32 *)(v + 13);
    return numbers(d, "SramEccErrorStatus.uncorrected", "0 0", 2, 1, v + 4, v + 5)
        ?: numbers(d, "SramEccErrorStatus.threshold", "0", 1, 0, flag);
}
int nvmlDeviceGetRetiredPages(Device d, int cause, u32 *count, u64 *addresses) {
    (void)cause, (void)addresses;
    return numbers(d, "RetiredPages", "!3", 1, 0, count);
}
int nvmlDeviceGetMemoryInfo(Device d, u64 *v) { /* total free used */
    return numbers(d, "MemoryInfo", "85899345920 85520809984 378535936", 3, 1, v, v + 1, v + 2);
}
int nvmlDeviceGetUtilizationRates(Device d, u32 *v) { return numbers(d, "UtilizationRates", "0 0", 2, 0, v, v + 1); }
int nvmlDeviceGetNvLinkErrorCounter(Device d, u32 link, u32 counter, u64 *v) {
    char name[64];
    snprintf(name, sizeof name, "NvLinkErrorCounter.%u.%u", link, counter);
    return numbers(d, name, "0", 1, 1, v);
}
/* Versions 2 and 3 of the structure begin alike; the last adds a summary. "FabricVersions" is the newest that is known. */
int nvmlDeviceGetGpuFabricInfoV(Device d, void *info) { /* state status cliqueId healthMask healthSummary */
    struct { u32 version; unsigned char uuid[16]; u32 status, clique, state, health; unsigned char summary; } *f = info;
    u32 state, status, clique, health, summary = 0, newest, cluster;
    int r = numbers(d, "FabricVersions", "3", 1, 0, &newest);
    if (!r && f->version >> 24 > newest) return VERSION_MISMATCH;
    if (!r) r = numbers(d, "FabricCluster", "0", 1, 0, &cluster);
    if (!r) r = numbers(d, "GpuFabricInfo", "3 0 1 0x1aa 1", 5, 0, &state, &status, &clique, &health, &summary);
    if (r) return r;
    memset(f->uuid, cluster, sizeof f->uuid);
    f->state = state, f->status = status, f->clique = clique, f->health = health;
    if (f->version >> 24 > 2) f->summary = summary;
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device d, u32 *count, void *infos) { /* pids */
    struct { u32 pid; u64 memory; u32 gi, ci; } *out = infos;
    char buf[1024], *p = buf, *end;
    u32 n = 0, room = *count;
    int r = get(d, "ComputeRunningProcesses", "", buf, sizeof buf);
    if (r) return r;
    for (;; n++, p = end) {
        u64 pid = strtoull(p, &end, 10);
        if (end == p) break;
        if (n < room) out[n].pid = pid, out[n].memory = 1 << 30, out[n].gi = out[n].ci = -1;
    }
    *count = n;
    return n > room ? INSUFFICIENT_SIZE : OK;
}
/* What an H100 answers to; the rest is "not supported". */
static const char *known_field(u32 field) {
    if (field == 91) return "18";                                 /* NVLinks */
    if (field == 82) return "40";                                 /* memory temperature */
    if (field == 165) return "0";                                 /* link state: that of NvLinkState */
    return field == 230 || (field >= 161 && field <= 163) ? "0" : "!3"; /* recovery action, data link layer errors */
}
int nvmlDeviceGetFieldValues(Device d, int n, FieldValue *v) { /* file FieldValue.ID; its own error for each field */
    char name[64], buf[64];
    int r = get(d, "FieldValues", "", buf, sizeof buf);
    if (r) return r;
    for (; n--; v++) {
        snprintf(name, sizeof name, v->scope ? "FieldValue.%u.%u" : "FieldValue.%u", v->field, v->scope);
        v->type = 3, v->v.u = 0, v->at = time(NULL) * 1000000LL;
        v->ret = numbers(d, name, known_field(v->field), 1, 1, &v->v.u);
        if (v->field == 165 && !v->ret) v->ret = nvmlDeviceGetNvLinkState(d, v->scope, (u32 *)&v->v.u);
    }
    return OK;
}

static FILE *events(void) {
    char path[4096];
    const char *dir = getenv("FAKE_NVML_DIR");
    snprintf(path, sizeof path, "%s/events", dir ? dir : "/nonexistent");
    return fopen(path, "r");
}
int nvmlEventSetCreate(EventSet **set) {
    FILE *f = events();
    if (!inits) return UNINITIALIZED;
    *set = calloc(1, sizeof **set);
    if (f) fseek(f, 0, SEEK_END), (*set)->offset = ftell(f), fclose(f);
    return OK;
}
int nvmlEventSetFree(EventSet *set) { free(set); return OK; }
int nvmlDeviceRegisterEvents(Device d, u64 types, EventSet *set) {
    char buf[64];
    int r = get(d, "RegisterEvents", "", buf, sizeof buf);
    if (!r) set->types[d->n] |= types;
    return r;
}
int nvmlEventSetWait_v2(EventSet *set, EventData *out, u32 timeout) {
    char buf[64], line[256];
    struct timespec t0, t;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    for (;;) {
        int r = inits ? value(-1, "EventSetWait", "", buf, sizeof buf) : UNINITIALIZED, gpu;
        FILE *f;
        if (r) return r;
        if ((f = events())) {
            fseek(f, set->offset, SEEK_SET);
            while (fgets(line, sizeof line, f) && strchr(line, '\n')) {
                u64 type, data;
                set->offset = ftell(f);
                if (sscanf(line, "%d %lli %lli", &gpu, (long long *)&type, (long long *)&data) != 3) continue;
                if (gpu < 0 || gpu >= MAX_GPUS || !(set->types[gpu] & type)) continue;
                fclose(f);
                *out = (EventData){&gpus[gpu], type, data, -1, -1};
                return OK;
            }
            fclose(f);
        }
        clock_gettime(CLOCK_MONOTONIC, &t);
        if ((t.tv_sec - t0.tv_sec) * 1000 + (t.tv_nsec - t0.tv_nsec) / 1000000 >= timeout) return TIMEOUT;
        wait_ms(10);
    }
}
