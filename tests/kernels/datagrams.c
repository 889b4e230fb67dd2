/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Datagrams from a file, and into one, for machines with little else:
 *
 *     datagrams send ADDRESS PORT FILE GAP_US     1316 bytes at a time
 *     datagrams receive PORT BYTES                onto stdout, until there are so many, or none for ten seconds
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int failed(const char *what)
{
	perror(what);
	return 1;
}

static int send_file(const char *address, int port, const char *name, unsigned gap_us)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	int udp = socket(AF_INET, SOCK_DGRAM, 0);
	FILE *file = fopen(name, "r");
	char bytes[1316];
	size_t length;

	inet_pton(AF_INET, address, &to.sin_addr);
	if (!file)
		return failed(name);
	while ((length = fread(bytes, 1, sizeof bytes, file)) > 0) {
		if (sendto(udp, bytes, length, 0, (struct sockaddr *)&to, sizeof to) < 0)
			return failed("sendto");
		usleep(gap_us);
	}
	return 0;
}

static int receive(int port, size_t wanted)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct timeval patience = {.tv_sec = 10};
	int udp = socket(AF_INET, SOCK_DGRAM, 0), room = 8 << 20;
	char bytes[65536];

	setsockopt(udp, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
	setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	if (bind(udp, (struct sockaddr *)&at, sizeof at))
		return failed("bind");
	for (size_t got = 0; got < wanted;) {
		ssize_t length = recv(udp, bytes, sizeof bytes, 0);

		if (length < 0)
			return failed("recv");
		if (write(1, bytes, length) != length)
			return failed("write");
		got += length;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[1], "send"))
		return send_file(argv[2], atoi(argv[3]), argv[4], atoi(argv[5]));
	if (argc == 4 && !strcmp(argv[1], "receive"))
		return receive(atoi(argv[2]), strtoul(argv[3], NULL, 10));
	fprintf(stderr, "datagrams send ADDRESS PORT FILE GAP_US | receive PORT BYTES\n");
	return 2;
}
