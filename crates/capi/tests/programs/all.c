/*
 * What a program in C does with libonrush, and what it is told when it does it wrongly:
 *
 *   all memory
 *   all group WAY ADDRESS PORT...
 *   all server FOLDER [LEVELS]
 */
#include <onrush.h>

#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

/* Ends the program if an answer is not the one that is due. */
#define IS(due, answer) is(#answer, due, answer)

static void is(const char *call, int due, int answer)
{
    if (answer == due)
        return;
    fprintf(stderr, "%s answers %d, not %d: %s\n", call, answer, due, onrush_error_text());
    exit(1);
}

static void holds(const char *what, int it)
{
    if (it)
        return;
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
}
#define HOLDS(it) holds(#it, it)

static void locks(void)
{
    char *buffer = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    onrush_lock_t outer, inner, none = 7;
    onrush_totals_t totals;
    size_t count;

    IS(0, onrush_lock(buffer, 8 * PAGE, ONRUSH_PINNED, &outer));
    IS(0, onrush_lock(buffer + PAGE, PAGE, ONRUSH_RESIDENT, &inner));
    HOLDS(outer != inner);
    IS(0, onrush_totals(&totals));
    HOLDS(totals.locks == 2 && totals.pinned_bytes == 8 * PAGE && totals.resident_bytes == PAGE);
    IS(0, onrush_pages_in_memory(buffer, 8 * PAGE, &count));
    HOLDS(count == 8);

    if (geteuid() == 0) {
        uint64_t frames[8], more[4] = {0, 0, 0, 0};
        onrush_block_t blocks[8];
        uint64_t pages = 0;
        IS(0, onrush_lock_pages(outer, frames, 8, &count));
        HOLDS(count == 8 && frames[0] != 0);
        IS(0, onrush_lock_pages(outer, more, 3, &count));
        HOLDS(count == 8 && more[2] == frames[2] && more[3] == 0);
        IS(0, onrush_lock_pages(outer, NULL, 0, &count));
        IS(ONRUSH_ERROR_ARGUMENT, onrush_lock_pages(outer, NULL, 1, &count));
        IS(0, onrush_lock_blocks(outer, blocks, 8, &count));
        for (size_t i = 0; i < count; i++)
            pages += blocks[i].frames;
        HOLDS(pages == 8 && blocks[0].frame == frames[0]);
    }

    IS(0, onrush_unlock(inner));
    IS(ONRUSH_ERROR_HANDLE, onrush_unlock(inner));
    HOLDS(strstr(onrush_error_text(), "closed") != NULL);
    IS(ONRUSH_ERROR_HANDLE, onrush_lock_pages(inner, NULL, 0, &count));
    onrush_lock_t later;
    IS(0, onrush_lock(buffer, PAGE, ONRUSH_RESIDENT, &later));
    IS(ONRUSH_ERROR_HANDLE, onrush_unlock(inner)); /* whose place another has */
    IS(0, onrush_unlock(later));
    IS(0, onrush_unlock(outer));

    IS(ONRUSH_ERROR_ARGUMENT, onrush_lock(NULL, PAGE, ONRUSH_PINNED, &none));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_lock(buffer, PAGE, ONRUSH_PINNED, NULL));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_lock(buffer, PAGE, 3, &none));
    IS(ONRUSH_ERROR_ALIGNMENT, onrush_lock(buffer + 1, PAGE, ONRUSH_PINNED, &none));
    IS(ONRUSH_ERROR_ALIGNMENT, onrush_lock(buffer, PAGE, 0, (void *)((char *)&none + 1)));
    IS(ONRUSH_ERROR_RANGE, onrush_lock(buffer, 0, ONRUSH_PINNED, &none));
    IS(ONRUSH_ERROR_RANGE, onrush_lock(buffer, SIZE_MAX - PAGE + 1, ONRUSH_PINNED, &none));
    IS(ONRUSH_ERROR_RANGE, onrush_lock(buffer, SIZE_MAX / 2 + 1, ONRUSH_PINNED, &none));
    munmap(buffer + 4 * PAGE, 4 * PAGE);
    IS(ONRUSH_ERROR_MEMORY, onrush_lock(buffer, 8 * PAGE, ONRUSH_PINNED, &none));
    HOLDS(none == 7);
    IS(ONRUSH_ERROR_MEMORY, onrush_pages_in_memory(buffer, SIZE_MAX / 2 + 1 - PAGE, &count));

    void *pages;
    IS(0, onrush_pages_around(buffer + 100, PAGE, &pages, &count));
    HOLDS(pages == buffer && count == 2 * PAGE);
    IS(ONRUSH_ERROR_RANGE, onrush_pages_around((void *)(SIZE_MAX - 10), 9, &pages, &count));
    IS(0, onrush_totals(&totals));
    HOLDS(totals.locks == 0);
    munmap(buffer, 4 * PAGE);
}

static void segments(void)
{
    onrush_segment_t ours, theirs, shared, again;
    void *here, *there;
    size_t bytes;
    int id, file;
    onrush_lock_t lock;

    IS(0, onrush_segment_sysv(3 * PAGE - 1, &ours));
    IS(0, onrush_segment_memory(ours, &here, &bytes, &id));
    HOLDS(bytes == 3 * PAGE && id >= 0);
    IS(0, onrush_segment_attach(id, &theirs));
    IS(0, onrush_segment_memory(theirs, &there, NULL, NULL));
    strcpy(here, "the same memory");
    HOLDS(here != there && strcmp(there, "the same memory") == 0);
    IS(0, onrush_lock(there, bytes, ONRUSH_PINNED, &lock));
    IS(0, onrush_unlock(lock));
    IS(0, onrush_segment_detach(ours));
    IS(ONRUSH_ERROR_HANDLE, onrush_segment_detach(ours));
    IS(0, onrush_segment_detach(theirs));
    IS(ONRUSH_ERROR_SYSTEM, onrush_segment_attach(-1, &ours));
    IS(ONRUSH_ERROR_RANGE, onrush_segment_sysv(0, &ours));

    IS(0, onrush_segment_memfd(PAGE, &shared, &file));
    IS(0, onrush_segment_map(file, PAGE, &again));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_segment_map(file, 2 * PAGE, &ours));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_segment_map(-1, PAGE, &ours));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_segment_map(9999, PAGE, &ours));
    close(file);
    IS(0, onrush_segment_memory(shared, &here, NULL, &id));
    IS(0, onrush_segment_memory(again, &there, NULL, NULL));
    *(char *)here = 'x';
    HOLDS(id == -1 && *(char *)there == 'x');
    IS(ONRUSH_ERROR_HANDLE, onrush_unlock(shared)); /* it is no lock */
    IS(0, onrush_segment_detach(shared));
    IS(0, onrush_segment_detach(again));
}

static int ring(void)
{
    struct io_uring_params params;
    memset(&params, 0, sizeof params);
    return (int)syscall(SYS_io_uring_setup, 8, &params);
}

static void registrations(void)
{
    onrush_cache_options_t options = {ONRUSH_KEEP_SEALED, 100, 1 << 20};
    onrush_cache_counters_t counters;
    onrush_cache_t cache, other;
    onrush_sealed_t sealed, next;
    onrush_loan_t first, second, third;
    void *message, *memory;
    size_t bytes;
    int fd = ring();

    IS(0, onrush_cache_open(fd, &options, &cache));
    IS(ONRUSH_ERROR_UNSUPPORTED, onrush_cache_open(fd, &options, &other)); /* it has a table */
    IS(ONRUSH_ERROR_UNSUPPORTED, onrush_cache_open(0, &options, &other));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_cache_open(-1, &options, &other));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_cache_open(fd, NULL, &other));
    options.entries_max = 0;
    IS(ONRUSH_ERROR_ARGUMENT, onrush_cache_open(fd, &options, &other));
    options.entries_max = 100;

    IS(0, onrush_sealed_map(10000, &sealed, &message, &bytes));
    HOLDS(bytes == 3 * PAGE);
    IS(0, onrush_cache_acquire(cache, message, bytes, &first));
    IS(0, onrush_cache_acquire(cache, (char *)message + 100, 200, &second));
    HOLDS(first.buffer == second.buffer && first.number != second.number);
    HOLDS(first.uncached == ONRUSH_CACHED);
    static char ordinary[2 * PAGE];
    IS(0, onrush_cache_acquire(cache, ordinary, PAGE, &third));
    HOLDS(third.uncached == ONRUSH_UNCACHED_NOT_SEALED);
    IS(ONRUSH_ERROR_MEMORY, onrush_cache_acquire(cache, (void *)PAGE, PAGE, &third));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_cache_acquire(cache, NULL, PAGE, &third));
    IS(0, onrush_cache_counters(cache, &counters));
    HOLDS(counters.hits == 1 && counters.kept == 1 && counters.loans == 3);

    IS(0, onrush_sealed_release(sealed));
    IS(0, onrush_sealed_map(10000, &next, &memory, NULL));
    HOLDS(memory != message); /* which is on loan */
    IS(ONRUSH_ERROR_BUSY, onrush_cache_close(cache));
    IS(0, onrush_cache_release(cache, first.number));
    IS(ONRUSH_ERROR_HANDLE, onrush_cache_release(cache, first.number));
    onrush_loan_t later;
    IS(0, onrush_cache_acquire(cache, message, bytes, &later));
    IS(ONRUSH_ERROR_HANDLE, onrush_cache_release(cache, first.number));
    IS(0, onrush_cache_release(cache, later.number));
    IS(0, onrush_cache_release(cache, second.number));
    IS(0, onrush_cache_release(cache, third.number));
    IS(ONRUSH_ERROR_HANDLE, onrush_cache_release(cache, 12345));
    IS(0, onrush_cache_sweep(cache));
    IS(0, onrush_cache_close(cache));
    IS(ONRUSH_ERROR_HANDLE, onrush_cache_acquire(cache, message, bytes, &first));
    IS(ONRUSH_ERROR_HANDLE, onrush_cache_close(cache));
    IS(0, onrush_sealed_release(next));

    IS(ONRUSH_ERROR_UNSUPPORTED, onrush_cache_open(fd, &options, &other)); /* it has it still */
    HOLDS(strstr(onrush_error_text(), "IORING_UNREGISTER_BUFFERS") != NULL);
    HOLDS(syscall(SYS_io_uring_register, fd, IORING_UNREGISTER_BUFFERS, NULL, 0) == 0);
    IS(0, onrush_cache_open(fd, &options, &other));
    close(fd); /* the cache has its own */
    IS(0, onrush_cache_acquire(other, ordinary, PAGE, &third));
    IS(0, onrush_cache_release(other, third.number));
    IS(0, onrush_cache_close(other));
}

/* A child of fork has nothing of its parent's, and can begin anew. */
static void forks(void)
{
    static char buffer[2 * PAGE] __attribute__((aligned(PAGE)));
    onrush_lock_t lock, childs;
    int status;

    IS(0, onrush_lock(buffer, PAGE, ONRUSH_PINNED, &lock));
    pid_t child = fork();
    if (child == 0) {
        IS(ONRUSH_ERROR_HANDLE, onrush_unlock(lock));
        IS(0, onrush_lock(buffer, PAGE, ONRUSH_RESIDENT, &childs));
        IS(0, onrush_unlock(childs));
        _exit(0);
    }
    waitpid(child, &status, 0);
    HOLDS(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    IS(0, onrush_unlock(lock));
}

static void *lock_often(void *argument)
{
    static char buffer[16 * PAGE] __attribute__((aligned(PAGE)));
    for (int i = 0; i < 200; i++) {
        onrush_lock_t lock;
        char *at = buffer + (i % 8) * PAGE;
        IS(0, onrush_lock(at, 2 * PAGE, ONRUSH_RESIDENT, &lock));
        IS(0, onrush_unlock(lock));
        IS(ONRUSH_ERROR_HANDLE, onrush_unlock(lock));
    }
    return argument;
}

static void threads(void)
{
    pthread_t others[4];
    onrush_totals_t totals;
    for (int i = 0; i < 4; i++)
        pthread_create(&others[i], NULL, lock_often, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(others[i], NULL);
    IS(0, onrush_totals(&totals));
    HOLDS(totals.locks == 0);
}

/* A message that leaves from where it lies; the receivers get "sealed" twice. */
static void cached(onrush_group_t group, int count)
{
    onrush_cache_options_t watched = {ONRUSH_KEEP_WATCHED, 8, 1 << 20}, wrong = {7, 8, 1};
    onrush_cache_counters_t counters;
    onrush_group_counters_t done;
    onrush_sealed_t sealed;
    onrush_sent_t sent;
    void *message;

    IS(0, onrush_sealed_map(4096, &sealed, &message, NULL));
    memcpy(message, "sealed", 6);
    for (int i = 0; i < 2; i++) {
        IS(0, onrush_group_send_cached(group, message, 6, 1000, &sent));
        HOLDS(sent.packets == (uint64_t)count - 1 && sent.refused == 0);
    }
    IS(0, onrush_group_cache_counters(group, &counters));
    IS(0, onrush_group_counters(group, &done));
    /* Other ways have the kernel copy it. */
    HOLDS(counters.hits == (done.way == ONRUSH_WAY_URING));
    HOLDS(counters.misses == counters.hits);
    IS(ONRUSH_ERROR_RANGE, onrush_group_send_cached(group, message, 6, 0, NULL));
    IS(ONRUSH_ERROR_RANGE, onrush_group_send_cached(group, message, 6, 70000, NULL));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_send_cached(group, NULL, 6, 6, NULL));
    IS(ONRUSH_ERROR_RANGE, onrush_group_send_cached(group, message, SIZE_MAX, 6, NULL));
    IS(0, onrush_group_set_cache(group, &watched));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_set_cache(group, &wrong));
    wrong.keep = ONRUSH_KEEP_SEALED;
    wrong.entries_max = 0;
    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_set_cache(group, &wrong));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_set_cache(group, NULL));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_cache_counters(group, NULL));
    IS(0, onrush_sealed_release(sealed));
    IS(ONRUSH_ERROR_HANDLE, onrush_group_send_cached(group + 1, "x", 1, 1, NULL));
}

static void group(int way, const char *address, char **ports, int count)
{
    struct sockaddr_in *members = calloc(count, sizeof *members);
    onrush_group_options_t options = {way, 1000};
    onrush_group_counters_t counters;
    onrush_member_counters_t member;
    onrush_group_t group;
    onrush_sent_t sent;
    char reason[1000];
    size_t length, removed;
    int receiver = socket(AF_INET, SOCK_DGRAM, 0), stream = socket(AF_INET, SOCK_STREAM, 0);

    for (int i = 0; i < count; i++) {
        members[i].sin_family = AF_INET;
        members[i].sin_port = htons(atoi(ports[i]));
        inet_pton(AF_INET, address, &members[i].sin_addr);
    }
    struct sockaddr_in any = {.sin_family = AF_INET};
    if (bind(receiver, (struct sockaddr *)&any, sizeof any) != 0)
        exit(2);
    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_open(stream, &options, &group));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_open(-1, &options, &group));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_open(9999, &options, &group));
    options.way = 9;
    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_open(receiver, &options, &group));
    options.way = way;
    options.members_max = 0;
    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_open(receiver, &options, &group));
    options.members_max = 1000;
    IS(0, onrush_group_open(receiver, &options, &group));
    close(receiver); /* the group has its own */
    close(stream);

    IS(0, onrush_group_set(group, members, (count - 1) * sizeof *members));
    IS(0, onrush_group_send(group, "one", 3, 0, &sent));
    HOLDS(sent.packets == (uint64_t)count - 1 && sent.refused == 0);
    IS(0, onrush_group_add(group, &members[count - 1], sizeof *members));
    IS(0, onrush_group_send(group, "twotwo", 6, 3, &sent)); /* a train of two */
    HOLDS(sent.packets == 2 * (uint64_t)count);
    IS(0, onrush_group_remove(group, &members[0], sizeof *members, &removed));
    HOLDS(removed == 1);
    IS(0, onrush_group_remove(group, &members[0], sizeof *members, &removed));
    HOLDS(removed == 0);
    IS(ONRUSH_ERROR_ARGUMENT,
       onrush_group_member_counters(group, &members[0], sizeof *members, &member));
    IS(0, onrush_group_send(group, "three", 5, 0, NULL));
    IS(0, onrush_group_member_counters(group, &members[1], sizeof *members, &member));
    HOLDS(member.packets == 4 && member.refused == 0);

    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_add(group, members, sizeof *members - 1));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_set(group, NULL, sizeof *members));
    IS(ONRUSH_ERROR_RANGE, onrush_group_send(group, members, 100000, 0, &sent));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_group_send(group, NULL, 1, 0, &sent));
    IS(0, onrush_group_counters(group, &counters));
    HOLDS(counters.members == (uint64_t)count - 1 && counters.sends == 3);
    IS(0, onrush_group_reason(group, reason, sizeof reason, &length));
    HOLDS(strlen(reason) == length);
    IS(ONRUSH_ERROR_ROOM, onrush_group_reason(group, reason, length, &length));
    cached(group, count);
    printf("way %d, %llu packets, %s clones\n", counters.way, (unsigned long long)counters.packets,
           counters.clones > 0 ? "with" : "without");
    IS(0, onrush_group_close(group));
    IS(ONRUSH_ERROR_HANDLE, onrush_group_send(group, "four", 4, 0, NULL));
    free(members);
}

struct heard {
    int began, ended;
    onrush_server_t server;
    int answer;
};

static pthread_mutex_t heard_lock = PTHREAD_MUTEX_INITIALIZER;

static void hear(void *context, int event, const char *session)
{
    struct heard *heard = context;
    onrush_server_t none;
    size_t count;
    IS(ONRUSH_ERROR_BUSY, onrush_server_start("", &none));
    pthread_mutex_lock(&heard_lock);
    if (event == ONRUSH_SESSION_BEGAN)
        heard->began++;
    else if (heard->began > heard->ended)
        heard->ended++;
    heard->answer = onrush_server_sessions(heard->server, &count);
    pthread_mutex_unlock(&heard_lock);
    HOLDS(strstr(session, "\"film\":\"demo") != NULL);
}

static void server(const char *folder, const char *levels)
{
    char config[4096], text[1 << 16], line[100];
    struct heard heard = {0, 0, 0, 0};
    onrush_server_t server, none;
    size_t length, count;
    uint16_t rtsp, http;

    IS(ONRUSH_ERROR_ARGUMENT, onrush_log_to_stderr("loud=very"));
    IS(0, onrush_log_to_stderr(levels));
    IS(ONRUSH_ERROR_BUSY, onrush_log_to_stderr("warn"));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_server_start(NULL, &none));
    IS(ONRUSH_ERROR_CONFIG, onrush_server_start("", &none));
    IS(ONRUSH_ERROR_CONFIG, onrush_server_start("[server]\nburts = 1\nx = 2\n", &none));
    HOLDS(strstr(onrush_error_text(), "did you mean burst") != NULL);
    IS(ONRUSH_ERROR_ARGUMENT, onrush_server_start("\xff", &none));
    IS(ONRUSH_ERROR_CONFIG, onrush_server_start("[library]\nfolder = \"/tmp\"\n[server]\n"
                                                "sandbox = \"require\"\n", &none));

    snprintf(config, sizeof config,
             "[library]\nfolder = \"%s\"\n[server]\ncache = \"16MiB\"\n[listen]\n"
             "rtsp = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nmetrics = \"off\"\n",
             folder);
    pthread_mutex_lock(&heard_lock);
    IS(0, onrush_server_start_with_hook(config, hear, &heard, &server));
    heard.server = server;
    pthread_mutex_unlock(&heard_lock);
    IS(0, onrush_server_port(server, ONRUSH_SERVICE_RTSP, &rtsp));
    IS(0, onrush_server_port(server, ONRUSH_SERVICE_HTTP, &http));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_server_port(server, ONRUSH_SERVICE_FTP, &http));
    IS(ONRUSH_ERROR_ARGUMENT, onrush_server_port(server, 99, &http));
    IS(0, onrush_server_addresses(server, ONRUSH_SERVICE_RTSP, text, sizeof text, &length));
    snprintf(line, sizeof line, "[\"127.0.0.1:%d\"]", rtsp);
    HOLDS(strcmp(text, line) == 0);
    printf("listens %d %d\n", rtsp, http);
    fflush(stdout);

    /* The test plays, and asks for what is to be seen meanwhile and at the end. */
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "count\n") == 0) {
            IS(0, onrush_server_sessions(server, &count));
            printf("%zu\n", count);
        } else if (strcmp(line, "list\n") == 0) {
            IS(0, onrush_server_session_list(server, NULL, 0, text, sizeof text, &length));
            printf("%s\n", text);
        } else if (strncmp(line, "end ", 4) == 0) {
            line[strcspn(line, "\n")] = 0;
            printf("%d\n", onrush_server_session_end(server, line + 4));
        } else if (strcmp(line, "heard\n") == 0) {
            pthread_mutex_lock(&heard_lock);
            printf("%d %d %d\n", heard.began, heard.ended, heard.answer);
            pthread_mutex_unlock(&heard_lock);
        } else {
            IS(0, onrush_server_status(server, text, sizeof text, &length));
            printf("%s\n", text);
        }
        fflush(stdout);
    }
    IS(ONRUSH_ERROR_ROOM, onrush_server_status(server, text, 10, &length));
    HOLDS(length > 10);
    IS(0, onrush_server_stop(server));
    IS(ONRUSH_ERROR_HANDLE, onrush_server_stop(server));
    IS(ONRUSH_ERROR_HANDLE, onrush_server_sessions(server, &count));
}

int main(int count, char **words)
{
    HOLDS(onrush_abi_version() >= ONRUSH_ABI_VERSION && onrush_version()[0] != 0);
    HOLDS(onrush_error_text()[0] == 0);
    if (count == 2 && strcmp(words[1], "memory") == 0) {
        locks();
        segments();
        registrations();
        forks();
        threads();
    } else if (count > 4 && strcmp(words[1], "group") == 0) {
        group(atoi(words[2]), words[3], words + 4, count - 4);
    } else if ((count == 3 || count == 4) && strcmp(words[1], "server") == 0) {
        server(words[2], count == 4 ? words[3] : "warn");
    } else {
        return 2;
    }
    puts("done");
    return 0;
}
