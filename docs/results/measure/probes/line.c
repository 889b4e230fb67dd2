// SPDX-License-Identifier: MIT OR Apache-2.0
//
// How long a line of memory takes to the other processor and back, five times a second.
//
// cc -O2 -pthread -o line line.c && ./line SECONDS

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TURN_NS 2e7
#define REST_NS 180000000
#define ROUNDS_A_LOOK 100

static _Alignas(128) atomic_long line; // in a cache line of its own
static _Alignas(128) atomic_int stop;

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

static void *answer(void *unused)
{
	long odd = 1;

	pin(0);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		if (atomic_load_explicit(&line, memory_order_acquire) != odd)
			continue;
		atomic_store_explicit(&line, odd + 1, memory_order_release);
		odd += 2;
	}
	return unused;
}

int main(int count, char **arguments)
{
	double end_ns = now_ns() + 1e9 * (count > 1 ? atof(arguments[1]) : 20);
	struct timespec rest = { .tv_nsec = REST_NS };
	pthread_t other;
	long even = 0;

	pthread_create(&other, NULL, answer, NULL);
	pin(1);
	while (now_ns() < end_ns) {
		double begin_ns = now_ns();
		long rounds = 0;

		while (now_ns() - begin_ns < TURN_NS) {
			for (int i = 0; i < ROUNDS_A_LOOK; i++) {
				atomic_store_explicit(&line, even + 1, memory_order_release);
				even += 2;
				while (atomic_load_explicit(&line, memory_order_acquire) != even)
					;
			}
			rounds += ROUNDS_A_LOOK;
		}
		printf("%.0f ", (now_ns() - begin_ns) / rounds);
		fflush(stdout);
		nanosleep(&rest, NULL);
	}
	putchar('\n');
	atomic_store(&stop, 1);
	pthread_join(other, NULL);
}
