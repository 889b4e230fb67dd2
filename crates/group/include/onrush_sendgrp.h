/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * SO_SETSENDGRP: what a socket sends, all members of its group get. For programs in a control group that
 * `onrush group serve --cgroup` serves; elsewhere the calls fail with ENOPROTOOPT.
 *
 * Level is SOL_SOCKET. Values are arrays of struct sockaddr_in, or of struct sockaddr_in6 for sockets of
 * AF_INET6, of at most 4096 bytes a call.
 */
#ifndef ONRUSH_SENDGRP_H
#define ONRUSH_SENDGRP_H

#include <stdint.h>

/* The members are these, and those staged before; all at once. Without any, there is no group. */
#define SO_SETSENDGRP 0x4f01
/* These too; EEXIST if one is a member. */
#define SO_ADDSENDGRP 0x4f02
/* Not these any more; ENOENT if one is none. */
#define SO_DELSENDGRP 0x4f03
/* These will be members with the next SO_SETSENDGRP: for lists longer than a call takes. */
#define SO_STAGESENDGRP 0x4f04
/* getsockopt: struct sendgrp_info. */
#define SO_SENDGRPINFO 0x4f05

struct sendgrp_info {
	uint32_t members;
	uint32_t members_max;
	uint64_t sends; /* that were made many */
	uint64_t packets; /* to all members */
	uint64_t refused; /* of these, packets that were not sent */
	uint64_t over_quota; /* sends that were dropped whole */
};

#endif
