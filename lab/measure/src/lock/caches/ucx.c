// The registration cache of UCX (ucs/memory/rcache.h), asked as the other caches are: its registrations are buffers of
// an io_uring, as theirs. What to do comes by lines, what was found goes back by lines.
//
//     use BYTES USES MESSAGES   ns of an acquisition and return, ns to unmap a message's memory, registrations
//     hit KEPT HITS             ns of a hit and its return, registrations while they were measured
//     change HOW                registrations that a change of the memory behind a kept one led to

#include <errno.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <ucm/api/ucm.h>
#include <ucs/memory/rcache.h>

#define SLOTS_MAX 16384
#define PAGE 4096ul
#define ENTRIES_MAX 16 /* as the others have while messages come and go */
#define BYTES_MAX (256ul << 20)

struct region {
	ucs_rcache_region_t super;
	unsigned slot;
};

static int ring;
static unsigned slots[SLOTS_MAX], free_slots;
static unsigned long registrations;

static void fail(const char *what)
{
	printf("error %s: %s\n", what, strerror(errno));
	exit(1);
}

static int set_buffer(unsigned slot, void *at, size_t bytes)
{
	struct iovec part = { .iov_base = at, .iov_len = bytes };
	struct io_uring_rsrc_update2 update = { .offset = slot, .data = (uintptr_t)&part, .nr = 1 };
	return syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS_UPDATE, &update, sizeof update);
}

static ucs_status_t enrol(void *context, ucs_rcache_t *cache, void *argument, ucs_rcache_region_t *super,
			  uint16_t flags)
{
	struct region *region = (struct region *)super;
	if (free_slots == 0)
		return UCS_ERR_NO_MEMORY;
	region->slot = slots[--free_slots];
	if (set_buffer(region->slot, (void *)super->super.start, super->super.end - super->super.start) < 0) {
		slots[free_slots++] = region->slot;
		return UCS_ERR_IO_ERROR;
	}
	registrations++;
	return UCS_OK;
}

static void dismiss(void *context, ucs_rcache_t *cache, ucs_rcache_region_t *super)
{
	struct region *region = (struct region *)super;
	set_buffer(region->slot, NULL, 0);
	slots[free_slots++] = region->slot;
}

static void tell(void *context, ucs_rcache_t *cache, ucs_rcache_region_t *region, char *text, size_t bytes)
{
	snprintf(text, bytes, "slot %u", ((struct region *)region)->slot);
}

static ucs_rcache_t *cache_of(unsigned long entries_max)
{
	static const ucs_rcache_ops_t operations = { .mem_reg = enrol, .mem_dereg = dismiss, .dump_region = tell };
	ucs_rcache_params_t parameters = {
		.region_struct_size = sizeof(struct region),
		.alignment = UCS_RCACHE_MIN_ALIGNMENT,
		.max_alignment = PAGE,
		.ucm_events = UCM_EVENT_VM_UNMAPPED,
		.ucm_event_priority = 1000,
		.ops = &operations,
		.max_regions = entries_max,
		.max_size = BYTES_MAX,
		.max_unreleased = SIZE_MAX,
	};
	ucs_rcache_t *cache;
	ucs_status_t status = ucs_rcache_create(&parameters, "onrush-lab", NULL, &cache);
	if (status != UCS_OK) {
		printf("error ucs_rcache_create: %s\n", ucs_status_string(status));
		exit(1);
	}
	return cache;
}

static void acquire_and_release(ucs_rcache_t *cache, void *at, size_t bytes)
{
	ucs_rcache_region_t *region;
	ucs_status_t status = ucs_rcache_get(cache, at, bytes, PROT_READ | PROT_WRITE, NULL, &region);
	if (status != UCS_OK) {
		printf("error ucs_rcache_get: %s\n", ucs_status_string(status));
		exit(1);
	}
	ucs_rcache_region_put(cache, region);
}

static double now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static void touch(char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += PAGE)
		((volatile char *)at)[i] = 0x47;
}

static char *map(size_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		fail("mmap");
	madvise(at, bytes, MADV_NOHUGEPAGE);
	touch(at, bytes);
	return at;
}

static void use(size_t bytes, unsigned uses, unsigned messages)
{
	ucs_rcache_t *cache = cache_of(ENTRIES_MAX);
	size_t mapped = (bytes + PAGE - 1) & ~(PAGE - 1);
	double using = 0, unmapping = 0;
	unsigned long before = 0;
	/* The first warms up. */
	for (unsigned message = 0; message <= messages; message++) {
		char *at = map(mapped);
		double begin = now_ns();
		for (unsigned i = 0; i < uses; i++)
			acquire_and_release(cache, at, bytes);
		double used = now_ns();
		munmap(at, mapped);
		double unmapped = now_ns();
		if (message) {
			using += used - begin;
			unmapping += unmapped - used;
		} else {
			before = registrations;
		}
	}
	printf("%f %f %lu\n", using / messages / uses, unmapping / messages, registrations - before);
	ucs_rcache_destroy(cache);
}

static void hit(unsigned kept, unsigned hits)
{
	ucs_rcache_t *cache = cache_of(kept);
	char *at = map(kept * 2 * PAGE);
	unsigned *order = calloc(hits, sizeof *order);
	if (!order)
		fail("calloc");
	for (unsigned i = 0; i < kept; i++)
		acquire_and_release(cache, at + i * 2 * PAGE, PAGE);
	uint64_t random = 88172645463325252ull;
	for (unsigned i = 0; i < hits; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		order[i] = random % kept;
	}
	unsigned long before = registrations;
	double begin = now_ns();
	for (unsigned i = 0; i < hits; i++)
		acquire_and_release(cache, at + order[i] * 2 * PAGE, PAGE);
	double end = now_ns();
	printf("%f %lu\n", (end - begin) / hits, registrations - before);
	free(order);
	munmap(at, kept * 2 * PAGE);
	ucs_rcache_destroy(cache);
}

static void change(const char *how)
{
	const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
	ucs_rcache_t *cache = cache_of(ENTRIES_MAX);
	char *at = map(PAGE);
	acquire_and_release(cache, at, PAGE);
	unsigned long before = registrations;
	long done = -1;
	if (!strcmp(how, "replaced"))
		done = mmap(at, PAGE, protection, flags, -1, 0) == at ? 0 : -1;
	else if (!strcmp(how, "replaced-by-a-system-call"))
		done = syscall(SYS_mmap, at, PAGE, protection, flags, -1, 0) == (long)at ? 0 : -1;
	else if (!strcmp(how, "discarded"))
		done = madvise(at, PAGE, MADV_DONTNEED);
	else if (!strcmp(how, "discarded-by-a-system-call"))
		done = syscall(SYS_madvise, at, PAGE, MADV_DONTNEED);
	if (done)
		fail(how);
	touch(at, PAGE);
	acquire_and_release(cache, at, PAGE);
	printf("%lu\n", registrations - before);
	munmap(at, PAGE);
	ucs_rcache_destroy(cache);
}

int main(void)
{
	struct io_uring_params parameters = {};
	ring = syscall(SYS_io_uring_setup, 8, &parameters);
	if (ring < 0)
		fail("io_uring_setup");
	struct io_uring_rsrc_register table = { .nr = SLOTS_MAX, .flags = IORING_RSRC_REGISTER_SPARSE };
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS2, &table, sizeof table) < 0)
		fail("a table of buffers");
	for (unsigned i = 0; i < SLOTS_MAX; i++)
		slots[free_slots++] = i;
	setvbuf(stdout, NULL, _IOLBF, 0);
	char line[200], how[64];
	unsigned long bytes;
	unsigned a, b;
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "use %lu %u %u", &bytes, &a, &b) == 3)
			use(bytes, a, b);
		else if (sscanf(line, "hit %u %u", &a, &b) == 2)
			hit(a, b);
		else if (sscanf(line, "change %63s", how) == 1)
			change(how);
		else
			printf("error: %s", line);
	}
	return 0;
}
