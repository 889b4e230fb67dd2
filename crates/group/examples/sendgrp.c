/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One send, many receivers: sendgrp ADDRESS PORT...
 *
 *     sudo onrush group serve --cgroup /sys/fs/cgroup/games &
 *     gcc -o sendgrp sendgrp.c && (echo $$ >/sys/fs/cgroup/games/cgroup.procs && ./sendgrp 192.0.2.1 4000 4001)
 */
#include <arpa/inet.h>
#include <onrush_sendgrp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	struct sockaddr_in members[100] = {0};
	int n = argc - 2 < 100 ? argc - 2 : 100;
	for (int i = 0; i < n; i++) {
		members[i].sin_family = AF_INET;
		members[i].sin_port = htons(atoi(argv[i + 2]));
		inet_pton(AF_INET, argv[1], &members[i].sin_addr);
	}
	int group = socket(AF_INET, SOCK_DGRAM, 0);
	if (n < 1 || setsockopt(group, SOL_SOCKET, SO_SETSENDGRP, members, n * sizeof *members)) {
		perror("sendgrp ADDRESS PORT...");
		return 1;
	}
	/*
	 * The address gives the packets their way. The socket is not connected to it: when a program that it is
	 * connected to ends, a send fails, for all members.
	 */
	if (sendto(group, "one send, many receivers", 24, 0, (struct sockaddr *)members, sizeof *members) < 0) {
		perror("sendto");
		return 1;
	}
	struct sendgrp_info info;
	socklen_t length = sizeof info;
	getsockopt(group, SOL_SOCKET, SO_SENDGRPINFO, &info, &length);
	printf("%u members, %llu packets, %llu refused\n", info.members, (unsigned long long)info.packets,
	       (unsigned long long)info.refused);
	return 0;
}
