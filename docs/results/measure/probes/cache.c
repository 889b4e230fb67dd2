// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Nanoseconds of a load that waits for the one before, over 2 to 128 MB of huge pages and of base pages: lines in
// random order; pages in random order and the lines in each; one line from each page. The least of five walks.
//
// cc -O2 -o cache cache.c && ./cache            # alone
// ./cache 12                                    # beside a process on the other processor that walks through 12 MB

#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINE 64UL
#define PAGE 4096UL
#define LINES_A_PAGE (PAGE / LINE)
#define HUGE (2UL << 20)
#define BYTES_MAX (128UL << 20)

static size_t places[BYTES_MAX / LINE];

static void pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	sched_setaffinity(0, sizeof set, &set);
}

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static char *memory(size_t bytes, int advice)
{
	char *start = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (start == MAP_FAILED)
		exit(1);
	start = (char *)(((uintptr_t)start + HUGE - 1) & ~(HUGE - 1));
	madvise(start, bytes, advice);
	memset(start, 1, bytes);
	return start;
}

static void shuffle(size_t *which, size_t count)
{
	static uint64_t state = 88172645463325252ULL;

	while (count > 1) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		size_t other = state % count--, was = which[count];

		which[count] = which[other];
		which[other] = was;
	}
}

static void link_up(char *start, size_t count)
{
	for (size_t i = 0; i < count; i++)
		*(void **)(start + places[i]) = start + places[(i + 1) % count];
}

static void **walk(void **at, size_t loads)
{
	while (loads--)
		at = *at;
	asm volatile("" : "+r"(at));
	return at;
}

static double load_ns(char *start, size_t count)
{
	double least_ns = 1e18;

	link_up(start, count);
	for (int turn = 0; turn < 6; turn++) {
		double begin_ns = now_ns();

		walk((void **)start, count);
		double taken_ns = (now_ns() - begin_ns) / count;

		if (turn > 0 && taken_ns < least_ns) // the first warms up
			least_ns = taken_ns;
	}
	return least_ns;
}

static void lines(size_t bytes)
{
	for (size_t i = 0; i < bytes / LINE; i++)
		places[i] = i * LINE;
	shuffle(places, bytes / LINE);
}

static void lines_by_page(size_t bytes)
{
	size_t pages = bytes / PAGE, *page = malloc(pages * sizeof *page);

	for (size_t i = 0; i < pages; i++)
		page[i] = i * PAGE;
	shuffle(page, pages);
	for (size_t i = 0; i < pages; i++) {
		size_t *of_page = places + i * LINES_A_PAGE;

		for (size_t nth = 0; nth < LINES_A_PAGE; nth++)
			of_page[nth] = page[i] + nth * LINE;
		shuffle(of_page, LINES_A_PAGE);
	}
	free(page);
}

static void line_of_each_page(size_t bytes)
{
	for (size_t i = 0; i < bytes / PAGE; i++)
		places[i] = i * PAGE + i % LINES_A_PAGE * LINE;
	shuffle(places, bytes / PAGE);
}

static void walk_for_ever(size_t bytes)
{
	pid_t parent = getppid();
	char *start = memory(bytes, MADV_HUGEPAGE);

	pin(0);
	lines(bytes);
	link_up(start, bytes / LINE);
	for (void **at = (void **)start; getppid() == parent;)
		at = walk(at, 1000000);
	_exit(0);
}

int main(int count, char **arguments)
{
	static const size_t megabytes[] = { 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 64, 96, 128 };
	size_t beside = count > 1 ? strtoul(arguments[1], NULL, 10) << 20 : 0;
	pid_t other = beside && beside <= BYTES_MAX ? fork() : -1;

	if (other == 0)
		walk_for_ever(beside);
	pin(1);
	char *kinds[] = { memory(BYTES_MAX, MADV_HUGEPAGE), memory(BYTES_MAX, MADV_NOHUGEPAGE) };

	printf("%6s %10s %10s %12s %12s %12s %12s\n", "MB", "huge rnd", "base rnd", "huge bypage", "base bypage",
	       "huge 1/page", "base 1/page");
	for (size_t i = 0; i < sizeof megabytes / sizeof *megabytes; i++) {
		size_t bytes = megabytes[i] << 20;
		double ns[3][2];

		for (int kind = 0; kind < 2; kind++) {
			lines(bytes);
			ns[0][kind] = load_ns(kinds[kind], bytes / LINE);
			lines_by_page(bytes);
			ns[1][kind] = load_ns(kinds[kind], bytes / LINE);
			line_of_each_page(bytes);
			ns[2][kind] = load_ns(kinds[kind], bytes / PAGE);
		}
		printf("%6zu %10.1f %10.1f %12.1f %12.1f %12.1f %12.1f\n", megabytes[i], ns[0][0], ns[0][1], ns[1][0],
		       ns[1][1], ns[2][0], ns[2][1]);
		fflush(stdout);
	}
	if (other > 0) {
		kill(other, SIGKILL);
		waitpid(other, NULL, 0);
	}
}
