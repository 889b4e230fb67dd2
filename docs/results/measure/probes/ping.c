// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A round trip by ICMP over loopback, a step nearer at a time to what ping does, and ping itself; nanoseconds. Root.
//
// cc -O2 -o ping ping.c && ./ping

#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define PACKET_BYTES 64
#define ROUNDS 20000
#define WARM_UP 1000

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static uint16_t sum(const unsigned char *bytes, int count)
{
	uint32_t all = 0;

	for (int i = 0; i < count; i += 2) {
		uint16_t word;

		memcpy(&word, bytes + i, sizeof word);
		all += word;
	}
	all = (all >> 16) + (all & 0xffff);
	return ~(all + (all >> 16));
}

static void receive(int raw, unsigned char *packet, size_t bytes)
{
	struct sockaddr_in from;
	char control[512];
	struct iovec piece = { packet, bytes };
	struct msghdr message = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &piece, .msg_iovlen = 1,
				  .msg_control = control, .msg_controllen = sizeof control };

	recvmsg(raw, &message, 0);
}

// with_names: recvmsg with name and control messages; with_times: time stamps, clock, and sums of all that comes.
static double round_ns(int with_names, int with_times)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	unsigned char packet[PACKET_BYTES] = { 0 }, answer[256];
	struct icmphdr head = { .type = ICMP_ECHO, .un.echo.id = htons(getpid()) };
	int raw = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), on = 1;
	uint32_t all_but_replies = ~(1U << ICMP_ECHOREPLY);
	double begin_ns = 0;

	if (raw < 0) {
		perror("a raw socket");
		exit(2);
	}
	setsockopt(raw, SOL_RAW, 1 /* ICMP_FILTER */, &all_but_replies, sizeof all_but_replies);
	if (with_names)
		setsockopt(raw, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
	if (with_times)
		setsockopt(raw, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on);
	for (int i = -WARM_UP; i < ROUNDS; i++) {
		struct timeval time;

		if (i == 0)
			begin_ns = now_ns();
		head.un.echo.sequence = htons(i);
		head.checksum = 0;
		memcpy(packet, &head, sizeof head);
		if (with_times) {
			gettimeofday(&time, NULL);
			memcpy(packet + sizeof head, &time, sizeof time);
		}
		head.checksum = sum(packet, PACKET_BYTES);
		memcpy(packet, &head, sizeof head);
		sendto(raw, packet, PACKET_BYTES, 0, (struct sockaddr *)&to, sizeof to);
		if (with_names)
			receive(raw, answer, sizeof answer);
		else
			recv(raw, answer, sizeof answer, 0);
		if (with_times) {
			gettimeofday(&time, NULL);
			sum(answer, 84);
		}
	}
	double taken_ns = (now_ns() - begin_ns) / ROUNDS;

	close(raw);
	return taken_ns;
}

int main(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(1, &set);
	sched_setaffinity(0, sizeof set, &set);
	for (int turn = 0; turn < 5; turn++) {
		FILE *ping;
		int ms = 0;

		printf("raw, sendto/recv %.0f | raw, recvmsg %.0f | raw, recvmsg, SO_TIMESTAMP, clock and sums %.0f ns | ",
		       round_ns(0, 0), round_ns(1, 0), round_ns(1, 1));
		fflush(stdout);
		ping = popen("taskset -c 1 ping -f -q -c 20000 127.0.0.1 | sed -n 's/.*time \\([0-9]*\\)ms.*/\\1/p'", "r");
		if (!ping || fscanf(ping, "%d", &ms) != 1)
			return 2;
		pclose(ping);
		printf("ping -f %.0f ns\n", ms * 1e6 / ROUNDS);
	}
}
