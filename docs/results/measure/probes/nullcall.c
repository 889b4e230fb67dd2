// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Ticks of the time stamp counter that a getppid takes: five times by the first thread of a process, then once by
// each of four more. Each figure is the median of 4000 windows of 100 calls.
//
// cc -O2 -pthread -o nullcall nullcall.c && for i in 1 2 3 4 5 6 7 8 9 10 11 12; do ./nullcall; done

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <x86intrin.h>

#define WINDOWS 4000
#define CALLS 100

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double call_ticks(void)
{
	static double ticks[WINDOWS];
	unsigned core;

	for (int window = 0; window < WINDOWS; window++) {
		_mm_lfence();
		unsigned long begin = __rdtsc();

		for (int i = 0; i < CALLS; i++) {
			long result;

			asm volatile("syscall" : "=a"(result) : "0"((long)SYS_getppid) : "rcx", "r11", "memory");
		}
		ticks[window] = (double)(__rdtscp(&core) - begin) / CALLS;
	}
	qsort(ticks, WINDOWS, sizeof *ticks, compare);
	return ticks[WINDOWS / 2];
}

static void *thread(void *ticks)
{
	*(double *)ticks = call_ticks();
	return NULL;
}

int main(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(1, &set);
	sched_setaffinity(0, sizeof set, &set);
	call_ticks(); // to warm up
	for (int i = 0; i < 5; i++)
		printf("%.1f ", call_ticks());
	printf(" threads:");
	for (int i = 0; i < 4; i++) {
		pthread_t other;
		double ticks;

		pthread_create(&other, NULL, thread, &ticks);
		pthread_join(other, NULL);
		printf(" %.1f", ticks);
	}
	putchar('\n');
}
