/*
 * A small libretro core for tests: two players move a square each, and the inputs of all players are mixed into a seed.
 * The rest of its state is noise, which does not compress.
 *
 * -DDEFECT=...      its defect (see below); honest by default
 * -DSTATE_SIZE=...  size of its state in bytes, a multiple of 4
 * -DPLAYERS=...     number of players whose buttons it reads, at least two
 * -DPORTS=...       number of ports whose buttons it describes, at least two
 * -DOPTIONS=...     version of the interface by which it declares its options: 0, 1 or 2
 * -DGATE=...        a file: while it exists, the core refuses games
 *
 * Loading the library creates the file named by $COPLAY_TEST_MARK, so that a test can detect the load.
 *
 * Only the used parts of the interface are declared here, with the names of libretro.h.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HONEST 0
/* Defects that make it unfit for shared play. */
#define CLOCK 1   /* its state depends on the clock */
#define FORGETS 2 /* its saved state lacks a byte */
#define ADDRESS 3 /* its state depends on a memory address */
#define LATE 4    /* correct until frame 5,000 */
/* Oddities that a host must cope with, and further defects. */
#define LIAR 5     /* absurd sizes and rates, missing pointers */
#define NAN_RATE 6 /* the frame rate is not a number */
#define NO_SAVE 7  /* cannot save */
#define THREADS 8  /* calls the host from a thread of its own */
#define DISTURBED 9 /* saving changes its further course */
#define MUST_RUN 10 /* saves and loads only after its first frame */
#define GPU 11      /* requires a graphics card */
#define HALF 12     /* loads some states but reports a failure */
#define UNSET 13    /* reads uninitialised memory */
#define ASKS 14     /* cannot save, exposes no memory, and draws only on request */
#define ABORTS 15   /* aborts the process in its fifth frame */
#define HANGS 16    /* never returns from its fifth frame */

#ifndef DEFECT
#define DEFECT HONEST
#endif
#ifndef STATE_SIZE
#define STATE_SIZE 1024
#endif
#ifndef PLAYERS
#define PLAYERS 2
#endif
#ifndef PORTS
#define PORTS 2
#endif
#ifndef OPTIONS
#define OPTIONS 2
#endif
#ifndef GATE
#define GATE ""
#endif

#define WIDTH 64
#define HEIGHT 48
#define RATE 60
#define SAMPLES (48000 / RATE)

__attribute__((constructor)) static void leave_mark(void) {
    const char *path = getenv("COPLAY_TEST_MARK");
    FILE *mark = path ? fopen(path, "w") : NULL;
    if (mark) fclose(mark);
}

struct state {
    uint32_t frame;
    uint32_t seed;
    uint8_t x[2], y[2];
    uint8_t rest[STATE_SIZE - 12];
};

static struct state state;
static uint8_t forgotten;
static uint32_t picture[WIDTH * HEIGHT];
static uint32_t step = 1;
static void *allocated;

/* The linker merges such a variable over all libraries of a process, like variables of C++ templates. */
__asm__(".pushsection .data\n.balign 4\n.globl merged\n.type merged, @gnu_unique_object\n.size merged, 4\nmerged: .long 0\n"
        ".popsection");
extern uint32_t merged;

struct variable { const char *key, *value; };
struct value { const char *value, *label; };
struct option_v1 { const char *key, *desc, *info; struct value values[128]; const char *fallback; };
struct option_v2 { const char *key, *desc, *desc2, *info, *info2, *category; struct value values[128]; const char *fallback; };
struct options_v2 { void *categories; struct option_v2 *definitions; };
struct intl_v2 { struct options_v2 *us, *local; };
struct intl_v1 { struct option_v1 *us, *local; };
struct descriptor { unsigned port, device, index, id; const char *description; };
struct memory { uint64_t flags; void *ptr; size_t offset, start, select, disconnect, len; const char *space; };
struct map { const struct memory *descriptors; unsigned count; };
struct message { const char *text; unsigned frames; };
struct log { void (*log)(int level, const char *format, ...); };
struct system_info { const char *name, *version, *extensions; bool path, block; };
struct geometry { unsigned width, height, max_width, max_height; float aspect; };
struct av_info { struct geometry geometry; double fps, sample_rate; };
struct game { const char *path; const void *data; size_t size; const char *meta; };
struct perf { int64_t (*usec)(void); uint64_t (*features)(void); uint64_t (*counter)(void); void *rest[4]; };

static bool (*environment)(unsigned, void *);
static void (*video)(const void *, unsigned, unsigned, size_t);
static void (*sample)(int16_t, int16_t);
static size_t (*batch)(const int16_t *, size_t);
static void (*poll_input)(void);
static int16_t (*input)(unsigned, unsigned, unsigned, unsigned);
static struct log logger;
static struct perf perf;

static void declare_options(void) {
    unsigned version = 0;
    environment(52, &version);
#if OPTIONS == 2
    static struct option_v2 options[] = {
        {"testcore_step", "Step", 0, 0, 0, 0, {{"1", 0}, {"2", 0}, {"3", 0}, {0, 0}}, "1"},
        {"testcore_\xff", 0, 0, 0, 0, 0, {{0, 0}}, 0},
        {0, 0, 0, 0, 0, 0, {{0, 0}}, 0}};
    static struct options_v2 all = {0, options};
    struct intl_v2 intl = {&all, 0};
    environment(68, &intl);
#elif OPTIONS == 1
    static struct option_v1 options[] = {
        {"testcore_step", "Step", 0, {{"1", 0}, {"2", 0}, {"3", 0}, {0, 0}}, "1"}, {0, 0, 0, {{0, 0}}, 0}};
    struct intl_v1 intl = {options, 0};
    environment(54, &intl);
    environment(53, options);
#else
    static struct variable options[] = {{"testcore_step", "Step; 1|2|3"}, {0, 0}};
    environment(16, options);
#endif
}

void retro_set_environment(bool (*callback)(unsigned, void *)) {
    bool no_game = true;
    environment = callback;
    environment(18, &no_game);
    declare_options();
    environment(27, &logger);
    environment(28, &perf);
}

void retro_set_video_refresh(void (*callback)(const void *, unsigned, unsigned, size_t)) { video = callback; }
void retro_set_audio_sample(void (*callback)(int16_t, int16_t)) { sample = callback; }
void retro_set_audio_sample_batch(size_t (*callback)(const int16_t *, size_t)) { batch = callback; }
void retro_set_input_poll(void (*callback)(void)) { poll_input = callback; }
void retro_set_input_state(int16_t (*callback)(unsigned, unsigned, unsigned, unsigned)) { input = callback; }
unsigned retro_api_version(void) { return 1; }
void retro_init(void) { allocated = malloc(4096); }
void retro_deinit(void) { free(allocated); }
void retro_set_controller_port_device(unsigned port, unsigned device) { (void)port, (void)device; }
void retro_cheat_reset(void) {}
void retro_cheat_set(unsigned index, bool on, const char *code) { (void)index, (void)on, (void)code; }
bool retro_load_game_special(unsigned type, const struct game *game, size_t count) {
    (void)type, (void)game, (void)count;
    return false;
}
void retro_unload_game(void) {}
unsigned retro_get_region(void) { return 0; }

void retro_get_system_info(struct system_info *info) {
    memset(info, 0, sizeof *info);
    if (DEFECT == LIAR) return;
    info->name = "Test core";
    info->version = "1";
    info->extensions = "test|tst";
}

void retro_get_system_av_info(struct av_info *info) {
    memset(info, 0, sizeof *info);
    info->geometry = (struct geometry){WIDTH, HEIGHT, WIDTH, HEIGHT, 4.0f / 3.0f};
    info->fps = RATE;
    info->sample_rate = 48000;
    if (DEFECT == NAN_RATE) info->fps = 0.0 / 0.0;
    if (DEFECT == LIAR) {
        info->geometry = (struct geometry){4000000000u, 0, 1, 1, -1.0f / 0.0f};
        info->sample_rate = -1;
    }
}

/* Colour of each player, which distinguishes two games. */
static uint32_t colours[2] = {0xff8000, 0x0080ff};

static void make_noise(void) {
    uint32_t noise = 1;
    for (size_t at = 0; at < sizeof state.rest; at++) {
        noise = noise * 1664525u + 1013904223u;
        state.rest[at] = (uint8_t)(noise >> 24);
    }
}

/* Five buttons for each port, and an autofire button for the first. */
static void describe_buttons(void) {
    static const char *const names[] = {"Up", "Down", "Left", "Right", "Jump"};
    static struct descriptor descriptors[PORTS * 5 + 2];
    unsigned at = 0;
    for (unsigned port = 0; port < PORTS; port++)
        for (unsigned id = 0; id < 5; id++) descriptors[at++] = (struct descriptor){port, 1, 0, 4 + id, names[id]};
    descriptors[at] = (struct descriptor){0, 1, 0, 9, "Turbo"};
    environment(11, descriptors);
}

bool retro_load_game(const struct game *game) {
    unsigned format = 1;
    struct variable step_option = {"testcore_step", 0};
    environment(10, &format);
    describe_buttons();
    if (DEFECT == GPU) {
        uint8_t render[128] = {0};
        if (!environment(14, render)) return false;
    }
    if (game && game->size && *(const uint8_t *)game->data == '!') {
        logger.log(3, "bad image %s at %d\n", game->path, 7);
        return false;
    }
    if (!access(GATE, F_OK)) return false;
    if (environment(15, &step_option) && step_option.value) step = atoi(step_option.value);
    if (DEFECT == LIAR) {
        struct map map = {0, 4000000000u};
        struct message message = {0, 0};
        struct memory none = {0, 0, 5, 0, 0, 0, SIZE_MAX, 0};
        for (unsigned command = 0; command < 128; command++) environment(command, NULL);
        for (unsigned command = 0; command < 128; command++) environment(command | 0x10000, NULL);
        environment(36 | 0x10000, &map);
        map = (struct map){&none, 1};
        environment(36 | 0x10000, &map);
        environment(6, &message);
        format = 1;
        environment(10, &format);
        format = 77;
        environment(10, &format);
    }
    memset(&state, 0, sizeof state);
    make_noise();
    merged = 0;
    state.seed = game && game->size ? *(const uint8_t *)game->data : 1;
    state.x[1] = WIDTH - 4;
    if (DEFECT == ADDRESS) state.seed += (uint32_t)((uintptr_t)allocated >> 4);
    if (DEFECT == UNSET) state.seed += ((const uint8_t *)allocated)[2048];
    return true;
}

void retro_reset(void) { retro_load_game(NULL); }

static uint32_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint32_t)time.tv_nsec ^ (uint32_t)getpid();
}

static void *call_from_elsewhere(void *nothing) {
    struct variable variable = {"testcore_step", 0};
    bool refused = !environment(15, &variable) && !environment(52, &variable) && input(0, 1, 0, 4) == 0;
    int16_t pair[2] = {1, 1};
    video(picture, WIDTH, HEIGHT, WIDTH * 4);
    sample(1, 1);
    batch(pair, 1);
    logger.log(1, "from elsewhere");
    (void)nothing;
    return (void *)(intptr_t)refused;
}

static void play(void) {
    for (unsigned player = 0; player < PLAYERS; player++) {
        uint16_t mask = 0;
        for (unsigned id = 0; id < 16; id++) mask |= (uint16_t)(input(player, 1, 0, id) << id);
        if (mask != (uint16_t)input(player, 1, 0, 256)) mask = 0xdead;
        state.seed = (state.seed ^ mask) * 1664525u + 1013904223u;
        if (DEFECT == FORGETS) forgotten = (uint8_t)(forgotten * 5 + mask), state.seed += forgotten;
        if (player >= 2) continue;
        state.x[player] = (uint8_t)((state.x[player] + WIDTH + step * (mask >> 7 & 1) - step * (mask >> 6 & 1)) % WIDTH);
        state.y[player] = (uint8_t)((state.y[player] + HEIGHT + step * (mask >> 5 & 1) - step * (mask >> 4 & 1)) % HEIGHT);
    }
    state.frame++;
    merged++;
    state.rest[state.frame % sizeof state.rest] ^= (uint8_t)(state.seed >> 24);
    /* Two instances share the variable. */
    if (merged != state.frame) state.seed = now();
    if (DEFECT == CLOCK || (DEFECT == LATE && state.frame > 5000)) state.seed += now();
}

static void show(void) {
    bool duplicate = false;
    for (unsigned at = 0; at < WIDTH * HEIGHT; at++) picture[at] = state.seed >> 28;
    for (unsigned player = 0; player < 2; player++)
        for (unsigned y = 0; y < 4; y++)
            for (unsigned x = 0; x < 4; x++)
                picture[(state.y[player] + y) % HEIGHT * WIDTH + (state.x[player] + x) % WIDTH] = colours[player];
    environment(3, &duplicate);
    if (DEFECT == LIAR) {
        int16_t pair[2] = {7, 7};
        video(picture, 4000000000u, 4000000000u, 4);
        video(picture, WIDTH, HEIGHT, 1);
        video((void *)-1, WIDTH, HEIGHT, WIDTH * 4);
        batch(NULL, 1000);
        batch(pair, 1);
        for (unsigned i = 0; i < 200000; i++) sample(1, -1);
    }
    video(picture, WIDTH, HEIGHT, WIDTH * 4);
}

/* Whether the host wants to see the frame; without an answer, it does. */
static bool is_seen(void) {
    int wanted = 0;
    return DEFECT != ASKS || !environment(47 | 0x10000, &wanted) || (wanted & 1);
}

void retro_run(void) {
    int16_t sound[SAMPLES * 2];
    poll_input();
    play();
    if (DEFECT == THREADS) {
        pthread_t thread;
        void *refused = NULL;
        if (!pthread_create(&thread, NULL, call_from_elsewhere, NULL)) pthread_join(thread, &refused);
        if (!refused) state.seed = 0xbadbad;
    }
    if (perf.usec && perf.usec() != (int64_t)(state.frame - 1) * 16667) state.seed = 0xbadc10c;
    if (DEFECT == ABORTS && state.frame == 5) abort();
    while (DEFECT == HANGS && state.frame == 5) usleep(1000);
    if (is_seen()) show();
    for (unsigned i = 0; i < SAMPLES; i++) sound[2 * i] = sound[2 * i + 1] = (i / 50 % 2) ? 1000 : -1000;
    if (DEFECT == LIAR) return;
    batch(sound, SAMPLES);
}

size_t retro_serialize_size(void) {
    if (DEFECT == NO_SAVE || DEFECT == ASKS) return 0;
    return sizeof state;
}

bool retro_serialize(void *data, size_t size) {
    if (size < sizeof state || (DEFECT == MUST_RUN && state.frame == 0)) return false;
    if (DEFECT == DISTURBED) state.seed = state.seed * 3 + 1;
    memcpy(data, &state, sizeof state);
    return true;
}

bool retro_unserialize(const void *data, size_t size) {
    if (size != sizeof state || (DEFECT == MUST_RUN && state.frame == 0)) return false;
    memcpy(&state, data, sizeof state);
    if (DEFECT == HALF && state.y[0] >= HEIGHT) return false;
    merged = state.frame;
    return true;
}

void *retro_get_memory_data(unsigned id) { return id == 2 && DEFECT != LIAR && DEFECT != ASKS ? &state : NULL; }
size_t retro_get_memory_size(unsigned id) {
    return DEFECT == LIAR ? SIZE_MAX : id == 2 && DEFECT != ASKS ? sizeof state : 0;
}
