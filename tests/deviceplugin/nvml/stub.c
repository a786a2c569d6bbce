/* A small NVML for tests: answers from a text file, read again for every call, so that a test can change the
 * node's cards while a program runs. Its path is in the environment variable NVML_STUB. One item a line:
 *
 *   gpu UUID key=value…        a GPU; keys: memory reserved used (bytes), name, minor, bus, mig, action
 *   mig GPU-UUID UUID key=value…   an instance of a GPU with mig=1; keys: memory reserved used, gi, ci
 *   fail CALL UUID|* CODE      CALL answers CODE (for this card)
 *   hang CALL UUID|*           CALL does not come back while this stands
 *   xid UUID CODE [GI CI]      an event, once; for the whole GPU without GI and CI
 *
 * Without memory= a card reports none; without reserved= only the older memory call is there. As in the real
 * library the GPUs are those of the moment of nvmlInit: one that has left the file since is lost, one that
 * has come is not seen. What opens, closes and hangs is written to the file NVML_STUB.calls, if it is there.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, LOST = 15 };
enum { LINES = 128, WIDTH = 512, CARDS = 64, NAME = 96 };

typedef struct { char uuid[NAME]; } card_t;
typedef struct { char watched[CARDS][NAME]; int count; int seen; int used; } set_t;
typedef struct { char line[LINES][WIDTH]; int count; } file_t;

static card_t cards[CARDS];    /* handles: one address a UUID for the life of the process */
static card_t *opened[CARDS];  /* the GPUs at nvmlInit */
static int n_opened, n_refs;
static set_t sets[8];

static void read_file(file_t *file) {
    const char *path = getenv("NVML_STUB");
    FILE *stream = path ? fopen(path, "r") : NULL;
    file->count = 0;
    if (!stream) return;
    while (file->count < LINES && fgets(file->line[file->count], WIDTH, stream)) {
        char *line = file->line[file->count];
        line[strcspn(line, "\n")] = 0;
        if (*line) file->count++;
    }
    fclose(stream);
}

/* The n-th word of a line, or an empty one. */
static void word(const char *line, int n, char *out) {
    *out = 0;
    while (*line) {
        size_t length = strcspn(line, " ");
        if (n-- == 0) {
            if (length >= NAME) length = NAME - 1;
            memcpy(out, line, length);
            out[length] = 0;
            return;
        }
        line += length + strspn(line + length, " ");
    }
}

static int is(const char *line, int n, const char *text) {
    char found[NAME];
    word(line, n, found);
    return strcmp(found, text) == 0;
}

/* key=value of a line; underscores in a value stand for spaces. */
static int value(const char *line, const char *key, char *out) {
    char found[NAME];
    size_t length = strlen(key);
    for (int n = 0; word(line, n, found), *found; n++)
        if (!strncmp(found, key, length) && found[length] == '=') {
            strcpy(out, found + length + 1);
            for (char *c = out; *c; c++) if (*c == '_') *c = ' ';
            return 1;
        }
    return 0;
}

static unsigned long long number(const char *line, const char *key, unsigned long long otherwise) {
    char text[NAME];
    return value(line, key, text) ? strtoull(text, NULL, 10) : otherwise;
}

static const char *line_of(const file_t *file, const card_t *card) {
    for (int i = 0; i < file->count; i++) {
        const char *line = file->line[i];
        if ((is(line, 0, "gpu") && is(line, 1, card->uuid)) || (is(line, 0, "mig") && is(line, 2, card->uuid)))
            return line;
    }
    return NULL;
}

static card_t *handle(const char *uuid) {
    for (int i = 0; i < CARDS; i++) {
        if (!cards[i].uuid[0]) strcpy(cards[i].uuid, uuid);
        if (!strcmp(cards[i].uuid, uuid)) return &cards[i];
    }
    abort();
}

static void note(const char *call) {
    const char *path = getenv("NVML_STUB");
    char name[WIDTH];
    if (!path || snprintf(name, WIDTH, "%s.calls", path) >= WIDTH || access(name, F_OK)) return;
    FILE *stream = fopen(name, "a");
    if (stream) fprintf(stream, "%s\n", call), fclose(stream);
}

/* What the file orders for a call; hangs there if it says so. Leaves the file as it is now. */
static int ordered(file_t *file, const char *call, const card_t *card) {
    for (int hung = 0;; hung = 1) {
        int hangs = 0;
        read_file(file);
        for (int i = 0; i < file->count; i++) {
            const char *line = file->line[i];
            if (!is(line, 1, call) || !(is(line, 2, "*") || (card && is(line, 2, card->uuid)))) continue;
            if (is(line, 0, "fail")) {
                char code[NAME];
                word(line, 3, code);
                return atoi(code);
            }
            if (is(line, 0, "hang")) hangs = 1;
        }
        if (!hangs) return OK;
        if (!hung) note("hangs");
        usleep(5000);
    }
}

/* For calls about a card: its line, or what is wrong. */
static int begin(file_t *file, const char *call, const card_t *card, const char **line) {
    int code = ordered(file, call, card);
    if (code) return code;
    *line = line_of(file, card);
    return *line ? OK : LOST;
}

int nvmlInitWithFlags(unsigned flags) {
    file_t file;
    int code = ordered(&file, "nvmlInit", NULL);
    (void)flags;
    if (code) return code;
    note("nvmlInit");
    if (n_refs++) return OK;
    n_opened = 0;
    for (int i = 0; i < file.count; i++)
        if (is(file.line[i], 0, "gpu") && n_opened < CARDS) {
            char uuid[NAME];
            word(file.line[i], 1, uuid);
            opened[n_opened++] = handle(uuid);
        }
    return OK;
}

int nvmlShutdown(void) {
    note("nvmlShutdown");
    n_refs--;
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    file_t file;
    *count = (unsigned)n_opened;
    return ordered(&file, "nvmlDeviceGetCount", NULL);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, card_t **card) {
    file_t file;
    const char *line;
    if (index >= (unsigned)n_opened) return INVALID;
    *card = opened[index];
    return begin(&file, "nvmlDeviceGetHandleByIndex", *card, &line);
}

int nvmlDeviceGetUUID(card_t *card, char *uuid, unsigned length) {
    file_t file;
    snprintf(uuid, length, "%s", card->uuid);
    return ordered(&file, "nvmlDeviceGetUUID", card);
}

int nvmlDeviceGetName(card_t *card, char *name, unsigned length) {
    file_t file;
    const char *line;
    char text[NAME] = "Test GPU";
    int code = begin(&file, "nvmlDeviceGetName", card, &line);
    if (code) return code;
    value(line, "name", text);
    snprintf(name, length, "%s", text);
    return OK;
}

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo(card_t *card, struct memory *out) {
    file_t file;
    const char *line;
    int code = begin(&file, "nvmlDeviceGetMemoryInfo", card, &line);
    if (code) return code;
    out->total = number(line, "memory", 0);
    out->used = number(line, "used", 0);
    out->free = out->total - out->used;
    return out->total ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo_v2(card_t *card, struct memory_v2 *out) {
    file_t file;
    const char *line;
    char text[NAME];
    int code = begin(&file, "nvmlDeviceGetMemoryInfo", card, &line);
    if (code) return code;
    out->total = number(line, "memory", 0);
    out->reserved = number(line, "reserved", 0);
    out->used = number(line, "used", 0);
    out->free = out->total - out->reserved - out->used;
    return out->total && value(line, "reserved", text) ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMinorNumber(card_t *card, unsigned *minor) {
    file_t file;
    const char *line;
    int code = begin(&file, "nvmlDeviceGetMinorNumber", card, &line);
    if (code) return code;
    *minor = (unsigned)number(line, "minor", 0xFFFF);
    return *minor == 0xFFFF ? NOT_SUPPORTED : OK;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(card_t *card, struct pci *out) {
    file_t file;
    const char *line;
    char text[NAME] = "";
    int code = begin(&file, "nvmlDeviceGetPciInfo", card, &line);
    if (code) return code;
    if (!value(line, "bus", text)) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "%.31s", text);
    return OK;
}

struct field {
    unsigned id, scope;
    long long time, latency;
    unsigned kind, code;
    union { double d; unsigned u; unsigned long long ull; } value;
};

int nvmlDeviceGetFieldValues(card_t *card, int count, struct field *fields) {
    file_t file;
    const char *line;
    int code = begin(&file, "nvmlDeviceGetFieldValues", card, &line);
    if (code) return code;
    for (int i = 0; i < count; i++) {
        unsigned long long action = number(line, "action", 0xFFFF);
        fields[i].code = fields[i].id == 230 && action != 0xFFFF ? OK : NOT_SUPPORTED;
        fields[i].value.u = (unsigned)action;
    }
    return OK;
}

int nvmlDeviceGetMigMode(card_t *card, unsigned *current, unsigned *pending) {
    file_t file;
    const char *line;
    char text[NAME];
    int code = begin(&file, "nvmlDeviceGetMigMode", card, &line);
    if (code) return code;
    if (!value(line, "mig", text)) return NOT_SUPPORTED;
    *current = *pending = (unsigned)atoi(text);
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(card_t *card, unsigned *count) {
    file_t file;
    *count = 7;
    return ordered(&file, "nvmlDeviceGetMaxMigDeviceCount", card);
}

int nvmlDeviceGetMigDeviceHandleByIndex(card_t *card, unsigned index, card_t **instance) {
    file_t file;
    const char *line;
    char uuid[NAME];
    int code = begin(&file, "nvmlDeviceGetMigDeviceHandleByIndex", card, &line);
    if (code) return code;
    for (int i = 0; i < file.count; i++)
        if (is(file.line[i], 0, "mig") && is(file.line[i], 1, card->uuid) && index-- == 0) {
            word(file.line[i], 2, uuid);
            *instance = handle(uuid);
            return OK;
        }
    return NOT_FOUND;
}

static int placed(const char *call, const char *key, card_t *card, unsigned *id) {
    file_t file;
    const char *line;
    int code = begin(&file, call, card, &line);
    if (code) return code;
    *id = (unsigned)number(line, key, 0);
    return OK;
}

int nvmlDeviceGetGpuInstanceId(card_t *card, unsigned *id) {
    return placed("nvmlDeviceGetGpuInstanceId", "gi", card, id);
}

int nvmlDeviceGetComputeInstanceId(card_t *card, unsigned *id) {
    return placed("nvmlDeviceGetComputeInstanceId", "ci", card, id);
}

int nvmlDeviceGetSupportedEventTypes(card_t *card, unsigned long long *types) {
    file_t file;
    *types = 0x1F;
    return ordered(&file, "nvmlDeviceGetSupportedEventTypes", card);
}

int nvmlEventSetCreate(set_t **set) {
    file_t file;
    int code = ordered(&file, "nvmlEventSetCreate", NULL);
    if (code) return code;
    for (int i = 0; i < 8; i++)
        if (!sets[i].used) {
            *set = &sets[i];
            memset(*set, 0, sizeof **set);
            (*set)->used = 1;
            for (int l = 0; l < file.count; l++) (*set)->seen += is(file.line[l], 0, "xid");
            return OK;
        }
    return INVALID;
}

int nvmlEventSetFree(set_t *set) {
    note("nvmlEventSetFree");
    set->used = 0;
    return OK;
}

int nvmlDeviceRegisterEvents(card_t *card, unsigned long long types, set_t *set) {
    file_t file;
    const char *line;
    int code = begin(&file, "nvmlDeviceRegisterEvents", card, &line);
    if (code) return code;
    if (types & 8 && set->count < CARDS) strcpy(set->watched[set->count++], card->uuid);
    return OK;
}

struct event { card_t *device; unsigned long long type, value; unsigned gpu_instance, compute_instance; };

static int next_event(set_t *set, const file_t *file, struct event *out) {
    int n = 0;
    for (int i = 0; i < file->count; i++) {
        const char *line = file->line[i];
        char code[NAME], gi[NAME], ci[NAME];
        if (!is(line, 0, "xid") || n++ < set->seen) continue;
        set->seen = n;
        for (int w = 0; w < set->count; w++) {
            if (!is(line, 1, set->watched[w])) continue;
            word(line, 2, code), word(line, 3, gi), word(line, 4, ci);
            out->device = handle(set->watched[w]);
            out->type = 8;
            out->value = strtoull(code, NULL, 10);
            out->gpu_instance = *gi ? (unsigned)atoi(gi) : 0xFFFFFFFFu;
            out->compute_instance = *ci ? (unsigned)atoi(ci) : 0xFFFFFFFFu;
            return 1;
        }
    }
    return 0;
}

int nvmlEventSetWait_v2(set_t *set, struct event *out, unsigned milliseconds) {
    file_t file;
    for (unsigned waited = 0;; waited += 10) {
        int code = ordered(&file, "nvmlEventSetWait", NULL);
        if (code) return code;
        if (next_event(set, &file, out)) return OK;
        if (waited >= milliseconds) return TIMEOUT;
        usleep(10000);
    }
}

const char *nvmlErrorString(int code) {
    static char text[32];
    snprintf(text, sizeof text, "error %d", code);
    return text;
}
