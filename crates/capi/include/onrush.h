/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Onrush for C: locks on memory, a ring's registrations, groups of receivers, and a server in the
 * program itself. Made of crates/capi by cbindgen.
 *
 * Each function answers 0, or a negative ONRUSH_ERROR_...; onrush_error_text() says more. What a
 * function makes is written through its pointer only when it answers 0. Pointers that are NULL or
 * not aligned are errors; what they point at has to be there. Numbers that were closed are errors,
 * too, and so are all of the parent's in a child of fork. All functions can be called by any thread;
 * two calls for the same object take turns.
 */

#ifndef ONRUSH_H
#define ONRUSH_H

#include <stddef.h>
#include <stdint.h>

/**
 * The version of this interface. It grows when something is added; the name of the shared library
 * (libonrush.so.1) changes when something is changed or taken away.
 */
#define ONRUSH_ABI_VERSION 2

/**
 * Keeps registrations of sealed memory alone.
 */
#define ONRUSH_KEEP_SEALED 0

/**
 * Keeps those of other private memory, too, which is watched.
 */
#define ONRUSH_KEEP_WATCHED 1

/**
 * The registration will be found again.
 */
#define ONRUSH_CACHED 0

/**
 * It is not: the cache keeps sealed memory alone, and this is not.
 */
#define ONRUSH_UNCACHED_NOT_SEALED 1

/**
 * It is not: there is no userfaultfd here.
 */
#define ONRUSH_UNCACHED_NO_WATCHER 2

/**
 * It is not: another userfaultfd has the memory.
 */
#define ONRUSH_UNCACHED_WATCHED_BY_OTHERS 3

/**
 * It is not: the memory is shared, and others change it unreported.
 */
#define ONRUSH_UNCACHED_SHARED 4

/**
 * It is not: it is a file's mapping.
 */
#define ONRUSH_UNCACHED_FILE 5

/**
 * It is not: its contents were discarded a moment ago.
 */
#define ONRUSH_UNCACHED_DISCARDED 6

/**
 * It is not: it is more than the budget, or all that is kept is in use.
 */
#define ONRUSH_UNCACHED_BUDGET 7

/**
 * It is not, for a reason that this header does not know.
 */
#define ONRUSH_UNCACHED_OTHER 8

/**
 * An argument is NULL where it must not be, or no value that there is.
 */
#define ONRUSH_ERROR_ARGUMENT -1

/**
 * A pointer is not aligned to its type, or a range of memory is not whole pages.
 */
#define ONRUSH_ERROR_ALIGNMENT -2

/**
 * A range is empty, or longer than can be, or its end lies beyond the address space.
 */
#define ONRUSH_ERROR_RANGE -3

/**
 * There is nothing of that number and kind: it was closed, or opened by the parent of a fork.
 */
#define ONRUSH_ERROR_HANDLE -4

/**
 * The memory is not mapped, or not as is needed.
 */
#define ONRUSH_ERROR_MEMORY -5

/**
 * A limit of this library, of the account or of the kernel is reached.
 */
#define ONRUSH_ERROR_LIMIT -6

/**
 * This account may not do that.
 */
#define ONRUSH_ERROR_PERMISSION -7

/**
 * This kernel, or the way that was asked for, cannot do that.
 */
#define ONRUSH_ERROR_UNSUPPORTED -8

/**
 * It is in use, or does not answer in time: give back what is out, or ask again.
 */
#define ONRUSH_ERROR_BUSY -9

/**
 * The text does not fit; its length has been written.
 */
#define ONRUSH_ERROR_ROOM -10

/**
 * The configuration has mistakes; the text tells all, a line each.
 */
#define ONRUSH_ERROR_CONFIG -11

/**
 * The system refused; the text says what and why.
 */
#define ONRUSH_ERROR_SYSTEM -12

/**
 * A mistake of this library's. The object is unusable from now on: close it.
 */
#define ONRUSH_ERROR_PANIC -13

/**
 * The best way that opens.
 */
#define ONRUSH_WAY_BEST 0

/**
 * A program at the sending device clones one packet for all members (root).
 */
#define ONRUSH_WAY_KERNEL 1

/**
 * A batch of zero-copy sends from registered memory.
 */
#define ONRUSH_WAY_URING 2

/**
 * `sendmmsg`, with UDP_SEGMENT for trains.
 */
#define ONRUSH_WAY_SENDMMSG 3

/**
 * `sendto` for each member and packet.
 */
#define ONRUSH_WAY_LOOP 4

/**
 * All pages are in memory and stay there; the kernel may move them.
 */
#define ONRUSH_RESIDENT 0

/**
 * Pages stay in memory from when they are first touched.
 */
#define ONRUSH_ON_FAULT 1

/**
 * All pages are in memory and stay at their physical address.
 */
#define ONRUSH_PINNED 2

/**
 * RTSP.
 */
#define ONRUSH_SERVICE_RTSP 0

/**
 * RTSP over TLS.
 */
#define ONRUSH_SERVICE_RTSPS 1

/**
 * HTTP: downloads, HLS, DASH, and the page.
 */
#define ONRUSH_SERVICE_HTTP 2

/**
 * HTTP over TLS.
 */
#define ONRUSH_SERVICE_HTTPS 3

/**
 * FTP.
 */
#define ONRUSH_SERVICE_FTP 4

/**
 * Metrics, status and the dashboard.
 */
#define ONRUSH_SERVICE_METRICS 5

/**
 * A session has been set up.
 */
#define ONRUSH_SESSION_BEGAN 0

/**
 * A session is over.
 */
#define ONRUSH_SESSION_ENDED 1

/**
 * What a cache may keep.
 */
typedef struct onrush_cache_options_t {
    /**
     * ONRUSH_KEEP_SEALED or ONRUSH_KEEP_WATCHED.
     */
    int32_t keep;
    /**
     * Registrations, 1 to 16384.
     */
    uint32_t entries_max;
    /**
     * Bytes that they pin. RLIMIT_MEMLOCK counts all of each huge page that they touch.
     */
    uint64_t bytes_max;
} onrush_cache_options_t;

/**
 * A ring's cache. 0 is none.
 */
typedef uint64_t onrush_cache_t;

/**
 * The right to use registered memory in operations of the cache's ring.
 */
typedef struct onrush_loan_t {
    /**
     * What `onrush_cache_release` wants.
     */
    uint64_t number;
    /**
     * For an operation's `buf_index`.
     */
    uint16_t buffer;
    /**
     * ONRUSH_CACHED, or why it will not be found again.
     */
    int32_t uncached;
} onrush_loan_t;

/**
 * What a cache has done.
 */
typedef struct onrush_cache_counters_t {
    /**
     * Requests that found a registration.
     */
    uint64_t hits;
    /**
     * Requests that made one.
     */
    uint64_t misses;
    /**
     * Requests whose registration was not kept.
     */
    uint64_t uncached;
    /**
     * Registrations that were given up because their memory has changed.
     */
    uint64_t invalidations;
    /**
     * Registrations that were given up for room.
     */
    uint64_t evictions;
    /**
     * Registrations that are kept now.
     */
    uint64_t kept;
    /**
     * Bytes that they pin.
     */
    uint64_t kept_bytes;
    /**
     * Loans that are out now.
     */
    uint64_t loans;
} onrush_cache_counters_t;

/**
 * What can be chosen about a group.
 */
typedef struct onrush_group_options_t {
    /**
     * ONRUSH_WAY_BEST, or another, which is taken or refused.
     */
    int32_t way;
    /**
     * Members at once, at most: 1 to 131072.
     */
    uint32_t members_max;
} onrush_group_options_t;

/**
 * A group of receivers. 0 is none.
 */
typedef uint64_t onrush_group_t;

/**
 * What became of a send, in packets, a train counting each of its own for each member.
 */
typedef struct onrush_sent_t {
    /**
     * Taken by the kernel.
     */
    uint64_t packets;
    /**
     * Refused by it.
     */
    uint64_t refused;
} onrush_sent_t;

/**
 * What a group has done so far.
 */
typedef struct onrush_group_counters_t {
    /**
     * Members now.
     */
    uint64_t members;
    /**
     * Calls of `onrush_group_send`.
     */
    uint64_t sends;
    /**
     * Packets taken by the kernel, to all members.
     */
    uint64_t packets;
    /**
     * Packets refused by it.
     */
    uint64_t refused;
    /**
     * Entries into the kernel that sent.
     */
    uint64_t crossings;
    /**
     * Packets, or whole trains, that the program at the device has cloned.
     */
    uint64_t clones;
    /**
     * The way it sends: ONRUSH_WAY_KERNEL and so on.
     */
    int32_t way;
} onrush_group_counters_t;

/**
 * What was sent to a member since it joined.
 */
typedef struct onrush_member_counters_t {
    /**
     * Packets taken by the kernel.
     */
    uint64_t packets;
    /**
     * Packets refused by it.
     */
    uint64_t refused;
    /**
     * The errno of the last that was refused; 0 if none was.
     */
    int32_t errno_last;
} onrush_member_counters_t;

/**
 * A lock on memory. 0 is none.
 */
typedef uint64_t onrush_lock_t;

/**
 * Consecutive frames of physical memory: one entry of a scatter/gather map.
 */
typedef struct onrush_block_t {
    /**
     * The number of the first frame.
     */
    uint64_t frame;
    /**
     * How many there are.
     */
    uint64_t frames;
} onrush_block_t;

/**
 * How much this process has locked.
 */
typedef struct onrush_totals_t {
    /**
     * Locks that are out.
     */
    uint64_t locks;
    /**
     * Bytes that are resident, by at least one lock.
     */
    uint64_t resident_bytes;
    /**
     * Bytes that are pinned, by at least one lock.
     */
    uint64_t pinned_bytes;
} onrush_totals_t;

/**
 * A mapping of memory that other processes may map, too. 0 is none.
 */
typedef uint64_t onrush_segment_t;

/**
 * Memory that nobody can unmap, replace or move. 0 is none.
 */
typedef uint64_t onrush_sealed_t;

/**
 * A server that runs. 0 is none.
 */
typedef uint64_t onrush_server_t;

/**
 * Is called with `context`, ONRUSH_SESSION_BEGAN or ONRUSH_SESSION_ENDED, and the session's id,
 * client and film as JSON, which stays for the call alone. It runs on the server's thread that
 * does all control, with signals blocked: write down what is told, and return. Functions of
 * servers answer ONRUSH_ERROR_BUSY there.
 */
typedef void (*onrush_session_hook_t)(void *context, int event, const char *session);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library that runs: `ONRUSH_ABI_VERSION` of the header that it was built with.
 * A program that needs what this header has asks for at least its version.
 */
uint32_t onrush_abi_version(void);

/**
 * The version of Onrush, as text that stays.
 */
const char *onrush_version(void);

/**
 * Opens a cache of registrations for a ring of io_uring, which must have no registered buffers,
 * nor the empty table that an earlier cache has left. The descriptor stays the caller's. If the
 * ring was made for a single issuer, that thread alone may use the cache.
 */
int32_t onrush_cache_open(int ring,
                          const struct onrush_cache_options_t *options,
                          onrush_cache_t *cache);

/**
 * Lends the registration of `bytes` bytes at `address`, registering them if need be. If one is
 * found, no kernel is entered.
 */
int32_t onrush_cache_acquire(onrush_cache_t cache,
                             const void *address,
                             size_t bytes,
                             struct onrush_loan_t *loan);

/**
 * Takes a loan back, by its number, when the last operation that used it has completed, and has
 * notified if it was a zero-copy send.
 */
int32_t onrush_cache_release(onrush_cache_t cache, uint64_t loan);

/**
 * Gives up now what is no longer valid, instead of at the next request.
 */
int32_t onrush_cache_sweep(onrush_cache_t cache);

/**
 * What the cache has done so far, and has.
 */
int32_t onrush_cache_counters(onrush_cache_t cache, struct onrush_cache_counters_t *counters);

/**
 * Gives up all registrations. ONRUSH_ERROR_BUSY while loans are out. The ring keeps an empty
 * table: IORING_UNREGISTER_BUFFERS takes it away, before another cache or buffers of your own.
 */
int32_t onrush_cache_close(onrush_cache_t cache);

/**
 * What the last function of this library that failed in this thread had to say, with what to do
 * next; empty if none has. It stays until the next one fails in this thread.
 */
const char *onrush_error_text(void);

/**
 * Opens a group without members on a UDP socket. The group has a duplicate of the descriptor; the
 * caller keeps its own, to receive by, and should not send by it any more. `options` may be NULL.
 */
int32_t onrush_group_open(int socket,
                          const struct onrush_group_options_t *options,
                          onrush_group_t *group);

/**
 * Replaces all members. `addresses` are `bytes` bytes of struct sockaddr_in and struct
 * sockaddr_in6, one behind the other; none makes the group empty.
 */
int32_t onrush_group_set(onrush_group_t group, const void *addresses, size_t bytes);

/**
 * Adds members; those that are members already stay. If one cannot be added, those before it are.
 */
int32_t onrush_group_add(onrush_group_t group, const void *addresses, size_t bytes);

/**
 * Removes members, and writes how many of them were some. `removed` may be NULL.
 */
int32_t onrush_group_remove(onrush_group_t group,
                            const void *addresses,
                            size_t bytes,
                            size_t *removed);

/**
 * Sends to every member: one datagram if `packet_bytes` is 0, else a train of packets of so many
 * bytes, of which the last may be shorter. A member that cannot be sent to is counted, and delays
 * nobody. `sent` may be NULL.
 */
int32_t onrush_group_send(onrush_group_t group,
                          const void *data,
                          size_t length,
                          size_t packet_bytes,
                          struct onrush_sent_t *sent);

/**
 * Sends a message of any length to every member, in packets of `packet_bytes` bytes, of which the
 * last may be shorter. By ONRUSH_WAY_URING it leaves from where it lies, without a copy: its
 * registration is looked for in the group's cache. The memory is the caller's again when this
 * returns. By other ways the kernel copies it. `sent` may be NULL.
 */
int32_t onrush_group_send_cached(onrush_group_t group,
                                 const void *data,
                                 size_t length,
                                 size_t packet_bytes,
                                 struct onrush_sent_t *sent);

/**
 * Says what `onrush_group_send_cached` may keep registered, from now on. At first that is sealed
 * memory alone, 1024 registrations of 256 MiB together.
 */
int32_t onrush_group_set_cache(onrush_group_t group, const struct onrush_cache_options_t *options);

/**
 * What the group's cache has done so far: hits, misses, uncached, invalidations and evictions.
 */
int32_t onrush_group_cache_counters(onrush_group_t group, struct onrush_cache_counters_t *counters);

/**
 * What the group has done so far.
 */
int32_t onrush_group_counters(onrush_group_t group, struct onrush_group_counters_t *counters);

/**
 * What was sent to one member, a struct sockaddr_in or sockaddr_in6, since it joined.
 */
int32_t onrush_group_member_counters(onrush_group_t group,
                                     const void *address,
                                     size_t bytes,
                                     struct onrush_member_counters_t *counters);

/**
 * Writes why the group sends the way it does, in words, to `text`, and its length. With too little
 * room it writes the length alone and answers ONRUSH_ERROR_ROOM.
 */
int32_t onrush_group_reason(onrush_group_t group, char *text, size_t room, size_t *length);

/**
 * Closes a group. Nothing of it is left in the kernel.
 */
int32_t onrush_group_close(onrush_group_t group);

/**
 * The whole pages that `bytes` bytes at `address` lie in: what can be locked of it.
 */
int32_t onrush_pages_around(const void *address, size_t bytes, void **pages, size_t *pages_bytes);

/**
 * Locks `bytes` bytes at `address`, whole pages, until `onrush_unlock`. Locks nest and overlap: a
 * page stays locked, in the way asked for, until the last lock on it is gone. `kind` is
 * ONRUSH_RESIDENT, ONRUSH_ON_FAULT or ONRUSH_PINNED. RLIMIT_MEMLOCK counts what is pinned once for
 * each lock, and all of each huge page that it touches.
 */
int32_t onrush_lock(const void *address, size_t bytes, int32_t kind, onrush_lock_t *lock);

/**
 * Gives a lock back.
 */
int32_t onrush_unlock(onrush_lock_t lock);

/**
 * Writes the physical frame behind each page, in order, as many as `room` says, and to `count` how
 * many pages there are. They are those of what lies at the address now: only if a pinned range was
 * neither unmapped nor moved nor discarded since, they are what is pinned, and stay so. Needs
 * CAP_SYS_ADMIN. `frames` may be NULL if `room` is 0.
 */
int32_t onrush_lock_pages(onrush_lock_t lock, uint64_t *frames, size_t room, size_t *count);

/**
 * The same as runs of consecutive frames.
 */
int32_t onrush_lock_blocks(onrush_lock_t lock,
                           struct onrush_block_t *blocks,
                           size_t room,
                           size_t *count);

/**
 * How many of the pages of a range, whole pages, are in memory now, locked or not.
 */
int32_t onrush_pages_in_memory(const void *address, size_t bytes, size_t *count);

/**
 * How much this process has locked, by this library.
 */
int32_t onrush_totals(struct onrush_totals_t *totals);

/**
 * Makes a System V segment and attaches it. It exists as long as somebody has it attached.
 */
int32_t onrush_segment_sysv(size_t bytes, onrush_segment_t *segment);

/**
 * Attaches the System V segment of this number, which another process has made.
 */
int32_t onrush_segment_attach(int sysv_id, onrush_segment_t *segment);

/**
 * Makes a file in memory, maps it, and writes its descriptor, which is the caller's: whoever gets
 * it can map the same memory.
 */
int32_t onrush_segment_memfd(size_t bytes, onrush_segment_t *segment, int *descriptor);

/**
 * Maps the first `bytes` bytes of a file, shared and writable: of a memfd, of shm_open(3), or of a
 * disk. The descriptor stays the caller's and may be closed.
 */
int32_t onrush_segment_map(int descriptor, size_t bytes, onrush_segment_t *segment);

/**
 * Writes where a segment is, how long it is in whole pages, and the number by which others attach
 * it: -1 if it is no System V segment. `bytes` and `sysv_id` may be NULL.
 */
int32_t onrush_segment_memory(onrush_segment_t segment,
                              void **address,
                              size_t *bytes,
                              int *sysv_id);

/**
 * Detaches a segment: its addresses are nobody's from now on.
 */
int32_t onrush_segment_detach(onrush_segment_t segment);

/**
 * Maps memory that nobody can unmap, replace, move or discard, so that a cache keeps its
 * registrations without watching (Linux 6.10). It is zeroed. `mapped_bytes` may be NULL.
 */
int32_t onrush_sealed_map(size_t bytes,
                          onrush_sealed_t *sealed,
                          void **address,
                          size_t *mapped_bytes);

/**
 * Gives sealed memory back. It stays mapped and waits for the next who wants as much, which gets
 * it zeroed; but not before the last loan of it has been given back.
 */
int32_t onrush_sealed_release(onrush_sealed_t sealed);

/**
 * Has what servers log written to stderr, a line each, from `levels` on: "warn", or levels of
 * parts, as in "info,onrush_server::rtsp=debug". Without a call nothing is logged. Once in a
 * process: ONRUSH_ERROR_BUSY from the second time on. A thread of its own writes, with signals
 * blocked: whoever does not read the lines holds up no server, and misses some, which is told.
 */
int32_t onrush_log_to_stderr(const char *levels);

/**
 * Starts a server with `config`, the text of a configuration file (TOML, docs/configuration.md),
 * which must name a folder: `[library]`, `folder = "FOLDER"`. It listens when this answers 0;
 * its threads are its own. No environment variable is looked at and no signal is handled: the
 * server's threads have all blocked but those of faults (SIGSEGV and the like), so that handlers
 * run on the program's threads alone and a client that goes raises no SIGPIPE. The limit of open
 * files is raised as far as the account may. What the command alone can do is
 * ONRUSH_ERROR_CONFIG: object stores, a cluster, `sandbox = "require"`, `status_at_exit`. By
 * `sandbox = "on"` nothing is given up, and the log is text whatever its `format`.
 */
int32_t onrush_server_start(const char *config, onrush_server_t *server);

/**
 * The same, with a hook that is told of sessions. `context` is passed to it as it is, by a thread
 * of the server's, until `onrush_server_stop` has returned.
 */
int32_t onrush_server_start_with_hook(const char *config,
                                      onrush_session_hook_t hook,
                                      void *context,
                                      onrush_server_t *server);

/**
 * Writes the port of the first address at which the server listens for an ONRUSH_SERVICE_...
 */
int32_t onrush_server_port(onrush_server_t server, int32_t service, uint16_t *port);

/**
 * Writes the addresses at which the server listens for an ONRUSH_SERVICE_..., as a JSON array of
 * texts, and its length. With too little room it writes the length alone and answers
 * ONRUSH_ERROR_ROOM; so do the following.
 */
int32_t onrush_server_addresses(onrush_server_t server,
                                int32_t service,
                                char *text,
                                size_t room,
                                size_t *length);

/**
 * Writes what the server has done and does, as JSON: what `/status` answers.
 */
int32_t onrush_server_status(onrush_server_t server, char *text, size_t room, size_t *length);

/**
 * Writes how many sessions there are.
 */
int32_t onrush_server_sessions(onrush_server_t server, size_t *count);

/**
 * Writes up to 200 sessions as JSON, from number `first` on, of those whose client or film has
 * `find` in it (NULL: all): how many there are (`all`), how many were meant (`found`), and each
 * one's id, client, film, transport, state, position and losses (`sessions`).
 */
int32_t onrush_server_session_list(onrush_server_t server,
                                   const char *find,
                                   size_t first,
                                   char *text,
                                   size_t room,
                                   size_t *length);

/**
 * Ends the session of this id, which lists and hooks tell. Its client is told.
 */
int32_t onrush_server_session_end(onrush_server_t server, const char *id);

/**
 * Stops a server: says goodbye to every player, and returns when all its threads have ended and
 * its log is written, for which it waits a second at the most.
 */
int32_t onrush_server_stop(onrush_server_t server);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ONRUSH_H */
