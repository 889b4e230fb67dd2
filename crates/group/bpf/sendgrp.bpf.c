// SPDX-License-Identifier: MIT OR Apache-2.0
//
// SO_SETSENDGRP for sockets of any program in a control group: the socket keeps its list of members in its
// own storage, and what it sends becomes, at the device's egress, a packet for each of them.
//
// A list is written by setsockopt(2), which a program of the control group takes; the kernel itself never
// sees these options. Each socket has two lists, so that a change of many calls is switched to at once.
//
// Next hops are found by the agent in user space, which is asked for each new address. (The kernel's tables
// can be read from here, bpf_fib_lookup, but only of devices that forward.) Until it has answered, a clone
// leaves with a MAC that is nobody's, comes here again, and is handed to the stack for its next hop: dearer,
// and exact.
//
// Every member gets a clone, so that each refusal is seen, and the packet itself is freed (as in group.bpf.c).

#include "fan.h"

#include <bpf/bpf_endian.h>

#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SOCK_DGRAM 2
#define LOOPBACK_IFINDEX 1

// As in include/onrush_sendgrp.h.
#define SO_SETSENDGRP 0x4f01
#define SO_ADDSENDGRP 0x4f02
#define SO_DELSENDGRP 0x4f03
#define SO_STAGESENDGRP 0x4f04
#define SO_SENDGRPINFO 0x4f05

#define ENOENT_ 2
#define ENOMEM_ 12
#define EACCES_ 13
#define EBUSY_ 16
#define EEXIST_ 17
#define EINVAL_ 22
#define EOPNOTSUPP_ 95
#define EAFNOSUPPORT_ 97
#define ENOBUFS_ 105
#define EDQUOT_ 122

// A power of two. Mirrored by `SOCKET_MEMBERS_MAX` in crates/group/src/agent.rs.
#define MEMBERS_MAX 1024
#define PAGE_BYTES 4096
#define CALL_MEMBERS_MAX (PAGE_BYTES / 16)
// How long a next hop is believed: 2^25 ns, 34 ms.
#define MOMENT_SHIFT 25
#define SECOND_NS 1000000000ull

// Set by the loader.
const volatile __u32 needs_consent = 0;
const volatile __u64 groups_max = 0;
const volatile __u64 members_max = 0;
const volatile __u64 packets_per_second_max = 0;
const volatile __u64 netns_cookie = 0; /* of the agent's network namespace; 0: it is not known */

struct peer {
	struct member member;
	__u32 found; /* the moment in which its next hop was looked up */
	__u32 asked; /* the moment in which the agent was asked for it */
};

struct list {
	struct peer peers[MEMBERS_MAX];
};

struct group {
	__u64 number; /* of the socket; 0 for none yet */
	__u64 cgroup;
	__u64 lists_ns; /* since when it has lists, and is counted for them; 0: it has none */
	__u32 half; /* which list is in force */
	__u32 count; /* of members in it */
	__u32 staged; /* in the other one */
	__u32 counted; /* by its cgroup */
	__u64 sends;
	__u64 packets;
	__u64 refused;
	__u64 over_quota;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct group);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct list);
} lists_0 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct list);
} lists_1 SEC(".maps");

// What a control group has and may send. If there are more control groups than the map has room for, that of which
// nothing was heard for longest is forgotten, and begins anew: what its sockets give back then was not counted.
struct usage {
	__s64 lists; /* sockets that have lists, with members or without */
	__s64 groups;
	__s64 members;
	__u64 tokens; /* packets that may be sent at once */
	__u64 at_ns; /* when they were counted */
	__u64 refused; /* sends over the quota */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct usage);
} usages SEC(".maps");

// Who has sent to which socket.
struct consent {
	__u64 number;
	__be32 address[4];
	__be16 port;
	__u16 pad[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct consent);
	__type(value, __u32);
} consents SEC(".maps");

// Whose next hop is asked for. Mirrored by `Target` in crates/group/src/agent.rs.
struct target {
	__u32 family;
	__be32 address[4];
};

// Mirrored by `NextHop`.
struct hop {
	__u32 ifindex; /* 0: by no device that these programs are at */
	__u8 mac[6];
	__u16 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536); /* TARGETS_MAX */
	__type(key, struct target);
	__type(value, struct hop);
} hops SEC(".maps");

// By its index, a device at which members are. Mirrored by `Device`.
struct device {
	__u8 mac[6];
	__u16 pad;
	__u32 mtu_bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct device);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} wanted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

__u64 numbers;

static __always_inline struct list *list_of(struct bpf_sock *sk, __u32 half, __u64 flags)
{
	return half ? bpf_sk_storage_get(&lists_1, sk, 0, flags) : bpf_sk_storage_get(&lists_0, sk, 0, flags);
}

static __always_inline void want(const struct member *member, __u32 family)
{
	struct target *event = bpf_ringbuf_reserve(&wanted, sizeof *event, 0);
	if (!event)
		return;
	event->family = family;
	__builtin_memcpy(event->address, member->address, sizeof event->address);
	bpf_ringbuf_submit(event, 0);
}

static __always_inline int refuse(int error)
{
	bpf_set_retval(-error);
	return 0;
}

// Reading a list.

struct reading {
	struct bpf_sockopt *ctx;
	struct group *group;
	struct list *list;
	struct list *from;
	__u32 at; /* where the next is written */
	__u32 is_ipv6;
	__u32 error;
	__u32 option;
	struct member member; /* that was read */
	__u32 found; /* where it is in the list */
	__u32 count;
};

static __always_inline _Bool is_same(const struct member *a, const struct member *b)
{
	return a->port == b->port && a->address[0] == b->address[0] && a->address[1] == b->address[1] &&
	       a->address[2] == b->address[2] && a->address[3] == b->address[3];
}

static long find_one(__u32 i, struct reading *reading)
{
	struct peer *peer = &reading->list->peers[i & (MEMBERS_MAX - 1)];
	if (!is_same(&peer->member, &reading->member))
		return 0;
	reading->found = i;
	return 1;
}

// Reads the address at that place of the value into `member`; 0, or why not.
static __always_inline int read_one(struct reading *reading, __u32 i)
{
	struct member *member = &reading->member;
	__u8 *value = reading->ctx->optval, *end = reading->ctx->optval_end;
	__builtin_memset(member, 0, sizeof *member);
	if (reading->is_ipv6) {
		// struct sockaddr_in6: family, port, flow, address, scope.
		__u8 *at = value + (i & 0xff) * 28;
		if (at + 28 > end)
			return EINVAL_;
		if (*(__u16 *)at != AF_INET6)
			return EAFNOSUPPORT_;
		member->port = *(__be16 *)(at + 2);
		__builtin_memcpy(member->address, at + 8, 16);
		__be32 *a = member->address;
		if (a[0] == 0 && a[1] == 0 && (a[2] == 0 || a[2] == bpf_htonl(0xffff)))
			// Unspecified, or an IPv4 address mapped; ::1 is neither.
			if (a[2] || !a[3])
				return EAFNOSUPPORT_;
		// Groups of hosts; and hosts on a link, as the zone that says on which is not read.
		if ((a[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000) ||
		    (a[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000))
			return EINVAL_;
		member->sum_address = fold(sum_of(member->address, 8));
	} else {
		__u8 *at = value + (i & 0xff) * 16;
		if (at + 16 > end)
			return EINVAL_;
		if (*(__u16 *)at != AF_INET)
			return EAFNOSUPPORT_;
		member->port = *(__be16 *)(at + 2);
		__builtin_memcpy(member->address, at + 4, 4);
		__u32 a = bpf_ntohl(member->address[0]);
		// Nobody, groups of hosts, and all.
		if (a == 0 || a >> 28 == 14 || a == 0xffffffff)
			return EINVAL_;
		member->sum_address = fold(sum_of(member->address, 2));
	}
	if (!member->port)
		return EINVAL_;
	member->sum_port = member->port;
	if (needs_consent) {
		struct consent consent = { .number = reading->group->number, .port = member->port };
		__builtin_memcpy(consent.address, member->address, sizeof consent.address);
		if (!bpf_map_lookup_elem(&consents, &consent))
			return EACCES_;
	}
	return 0;
}

static long append_one(__u32 i, struct reading *reading)
{
	int error = read_one(reading, i);
	if (!error && reading->at >= MEMBERS_MAX)
		error = ENOBUFS_;
	if (!error && reading->option == SO_ADDSENDGRP) {
		reading->found = MEMBERS_MAX;
		bpf_loop(reading->at, find_one, reading, 0);
		if (reading->found < MEMBERS_MAX)
			error = EEXIST_;
	}
	if (error) {
		reading->error = error;
		return 1;
	}
	struct peer *peer = &reading->list->peers[reading->at & (MEMBERS_MAX - 1)];
	peer->member = reading->member;
	peer->found = 0;
	peer->asked = 0;
	reading->at++;
	return 0;
}

// Asks for the next hops of new members, the last one first. Only once all are accepted: members that are staged or
// refused have the agent do nothing.
static long want_one(__u32 i, struct reading *reading)
{
	struct peer *peer = &reading->list->peers[(reading->at - 1 - i) & (MEMBERS_MAX - 1)];
	want(&peer->member, reading->is_ipv6 ? AF_INET6 : AF_INET);
	return 0;
}

static long copy_one(__u32 i, struct reading *reading)
{
	reading->list->peers[i & (MEMBERS_MAX - 1)] = reading->from->peers[i & (MEMBERS_MAX - 1)];
	return 0;
}

static long remove_one(__u32 i, struct reading *reading)
{
	int error = read_one(reading, i);
	reading->found = MEMBERS_MAX;
	if (!error) {
		bpf_loop(reading->at, find_one, reading, 0);
		if (reading->found >= MEMBERS_MAX)
			error = ENOENT_;
	}
	if (error) {
		reading->error = error;
		return 1;
	}
	reading->at--;
	struct peer *last = &reading->list->peers[reading->at & (MEMBERS_MAX - 1)];
	reading->list->peers[reading->found & (MEMBERS_MAX - 1)] = *last;
	return 0;
}

static __always_inline struct usage *usage_of(__u64 cgroup)
{
	struct usage *usage = bpf_map_lookup_elem(&usages, &cgroup);
	if (usage)
		return usage;
	struct usage none = {};
	none.tokens = packets_per_second_max;
	none.at_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&usages, &cgroup, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&usages, &cgroup);
}

// Takes so many off a count, which does not fall below nothing.
static __always_inline void take_off(__s64 *count, __s64 less)
{
	__s64 before = __sync_fetch_and_add(count, -less);
	if (before < less)
		__sync_fetch_and_add(count, before > 0 ? less - before : less);
}

// Counts a socket that is about to have lists, if its control group may have one more: they are kernel memory that no
// limit of the program counts. Twice as many sockets may have lists as may have members, because some have members
// staged only, or lost theirs.
static __always_inline int charge_lists(struct group *group)
{
	struct usage *usage = usage_of(group->cgroup);
	if (!usage)
		return ENOMEM_;
	if ((usage->lists >> 1) >= (__s64)groups_max)
		return EDQUOT_;
	__sync_fetch_and_add(&usage->lists, 1);
	group->lists_ns = bpf_ktime_get_ns();
	return 0;
}

// Deletes the lists of a socket that has no members and none staged, but not within a second of their making: memory of
// deleted lists is free after a grace period only (RCU Tasks Trace), which may take a tenth of a second, and a program
// that makes and deletes lists in a loop would have gigabytes wait for it. Until a later change, or its end, such a
// socket keeps its lists.
static __always_inline void delete_lists(struct group *group, struct bpf_sock *sk)
{
	if (!group->lists_ns || group->count || group->staged || bpf_ktime_get_ns() - group->lists_ns < SECOND_NS)
		return;
	bpf_sk_storage_delete(&lists_0, sk);
	bpf_sk_storage_delete(&lists_1, sk);
	group->lists_ns = 0;
	struct usage *usage = bpf_map_lookup_elem(&usages, &group->cgroup);
	if (usage)
		take_off(&usage->lists, 1);
}

// Lets a group have so many members, if its control group may. Without any it is none.
static __always_inline int count(struct group *group, __u32 members)
{
	struct usage *usage = usage_of(group->cgroup);
	if (!usage)
		return ENOMEM_;
	__s64 more = (__s64)members - group->count;
	_Bool is_new = members && !group->counted, is_over = !members && group->counted;
	if (more > 0 && usage->members + more > (__s64)members_max)
		return EDQUOT_;
	if (is_new && usage->groups >= (__s64)groups_max)
		return EDQUOT_;
	if (more < 0)
		take_off(&usage->members, -more);
	else
		__sync_fetch_and_add(&usage->members, more);
	if (is_new)
		__sync_fetch_and_add(&usage->groups, 1);
	if (is_over)
		take_off(&usage->groups, 1);
	group->counted = members > 0;
	group->count = members;
	return 0;
}

static __always_inline void give_number(struct group *group)
{
	if (!group->number)
		group->number = __sync_fetch_and_add(&numbers, 1) + 1;
}

static __always_inline int change(struct reading *reading, struct bpf_sock *sk, __u32 n)
{
	struct group *group = reading->group;
	int error = 0;
	if (!group->lists_ns) {
		// Nor has it members: there is nothing to take away, and no list is needed to have none.
		if (reading->option == SO_DELSENDGRP)
			return ENOENT_;
		if (!n)
			return 0;
		error = charge_lists(group);
		if (error)
			return error;
	}
	if (reading->option == SO_ADDSENDGRP) {
		reading->list = list_of(sk, group->half, BPF_SK_STORAGE_GET_F_CREATE);
		if (!reading->list)
			return ENOMEM_;
		reading->at = group->count;
		bpf_loop(n, append_one, reading, 0);
		error = reading->error ? reading->error : count(group, reading->at);
		if (!error)
			bpf_loop(n, want_one, reading, 0);
		return error;
	}
	reading->list = list_of(sk, !group->half, BPF_SK_STORAGE_GET_F_CREATE);
	if (!reading->list)
		return ENOMEM_;
	if (reading->option == SO_DELSENDGRP) {
		if (group->staged)
			return EBUSY_;
		reading->from = list_of(sk, group->half, 0);
		if (!reading->from)
			return ENOENT_;
		reading->at = group->count;
		bpf_loop(group->count, copy_one, reading, 0);
		bpf_loop(n, remove_one, reading, 0);
	} else {
		reading->at = group->staged;
		bpf_loop(n, append_one, reading, 0);
		// A list that is refused is refused with what was staged for it.
		group->staged = 0;
	}
	if (reading->error)
		return reading->error;
	if (reading->option == SO_STAGESENDGRP) {
		group->staged = reading->at;
		return 0;
	}
	error = count(group, reading->at);
	if (error)
		return error;
	group->half = !group->half;
	if (reading->option == SO_SETSENDGRP)
		bpf_loop(reading->at, want_one, reading, 0);
	return 0;
}

// Whether the socket is in another network namespace than the agent. No program is at the devices there, so that a send
// would reach only whom it names; the options are left to the kernel, which has none such and says so.
static __always_inline _Bool is_elsewhere(struct bpf_sockopt *ctx)
{
	return netns_cookie && bpf_get_netns_cookie(ctx) != netns_cookie;
}

SEC("cgroup/setsockopt")
int sendgrp_set(struct bpf_sockopt *ctx)
{
	// Below zero: the program of a control group further down has taken it. It may have refused it, too.
	if (ctx->level != SOL_SOCKET || ctx->optname < SO_SETSENDGRP || ctx->optname > SO_STAGESENDGRP ||
	    ctx->optlen < 0 || bpf_get_retval() || is_elsewhere(ctx))
		return 1;
	struct bpf_sock *sk = ctx->sk;
	if (!sk)
		return refuse(EINVAL_);
	if (sk->type != SOCK_DGRAM || sk->protocol != IPPROTO_UDP)
		return refuse(EOPNOTSUPP_);
	_Bool is_ipv6 = sk->family == AF_INET6;
	__u32 bytes = ctx->optlen, each = is_ipv6 ? 28 : 16;
	if (bytes > PAGE_BYTES || bytes % each)
		return refuse(EINVAL_);
	struct group *group = bpf_sk_storage_get(&groups, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!group)
		return refuse(ENOMEM_);
	give_number(group);
	if (!group->cgroup)
		group->cgroup = bpf_get_current_cgroup_id();
	struct reading reading = { .ctx = ctx, .group = group, .is_ipv6 = is_ipv6, .option = ctx->optname };
	int error = change(&reading, sk, bytes / each);
	delete_lists(group, sk);
	if (error)
		return refuse(error);
	// The kernel's own setsockopt is not called.
	ctx->optlen = -1;
	return 1;
}

struct info {
	__u32 members;
	__u32 members_max;
	__u64 sends;
	__u64 packets;
	__u64 refused;
	__u64 over_quota;
};

SEC("cgroup/getsockopt")
int sendgrp_get(struct bpf_sockopt *ctx)
{
	// What the kernel refuses, and a control group further down has not answered.
	if (ctx->level != SOL_SOCKET || ctx->optname != SO_SENDGRPINFO || !ctx->sk || !ctx->retval ||
	    is_elsewhere(ctx))
		return 1;
	struct info *info = ctx->optval;
	if ((void *)(info + 1) > ctx->optval_end)
		return refuse(EINVAL_);
	struct group *group = bpf_sk_storage_get(&groups, ctx->sk, 0, 0);
	__builtin_memset(info, 0, sizeof *info);
	info->members_max = MEMBERS_MAX;
	if (group) {
		info->members = group->count;
		info->sends = group->sends;
		info->packets = group->packets;
		info->refused = group->refused;
		info->over_quota = group->over_quota;
	}
	// Volatile, or the two become one store, which the verifier refuses.
	*(volatile __s32 *)&ctx->optlen = sizeof *info;
	*(volatile __s32 *)&ctx->retval = 0;
	return 1;
}

SEC("cgroup/sock_release")
int sendgrp_release(struct bpf_sock *sk)
{
	struct group *group = bpf_sk_storage_get(&groups, sk, 0, 0);
	if (!group || !group->lists_ns)
		return 1;
	struct usage *usage = bpf_map_lookup_elem(&usages, &group->cgroup);
	if (usage) {
		take_off(&usage->lists, 1);
		take_off(&usage->groups, group->counted);
		take_off(&usage->members, group->count);
	}
	return 1;
}

// Who sends to a socket of the control group agrees to be sent to by it.
SEC("cgroup_skb/ingress")
int sendgrp_hear(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk ? bpf_sk_fullsock(skb->sk) : NULL;
	if (!sk || sk->type != SOCK_DGRAM || sk->protocol != IPPROTO_UDP)
		return 1;
	struct consent consent = {};
	struct udphdr udp;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;
		if (sk->family != AF_INET || bpf_skb_load_bytes(skb, 0, &ip, sizeof ip) ||
		    bpf_skb_load_bytes(skb, ip.ihl * 4, &udp, sizeof udp))
			return 1;
		consent.address[0] = ip.saddr;
	} else {
		struct ipv6hdr ip;
		if (sk->family != AF_INET6 || bpf_skb_load_bytes(skb, 0, &ip, sizeof ip) ||
		    ip.nexthdr != IPPROTO_UDP || bpf_skb_load_bytes(skb, sizeof ip, &udp, sizeof udp))
			return 1;
		__builtin_memcpy(consent.address, &ip.saddr, sizeof consent.address);
	}
	struct group *group = bpf_sk_storage_get(&groups, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!group)
		return 1;
	give_number(group);
	consent.number = group->number;
	consent.port = udp.source;
	__u32 yes = 1;
	bpf_map_update_elem(&consents, &consent, &yes, BPF_ANY);
	return 1;
}

// Sending.

struct context {
	struct __sk_buff *skb;
	struct list *list;
	struct frame frame;
	__u32 is_ipv6;
	__u32 moment;
	__u32 ifindex; /* where the packet is */
	__u32 from; /* the device whose address the packet has as its source */
	__u32 fits; /* that device */
	__u32 bytes; /* of each packet, from the IP header on */
	__u32 refused; /* packets */
	__u32 bound; /* the device that the socket is bound to, or 0 */
	__u32 mark; /* of the socket */
};

static const __u8 nobody[6] = { 0x02, 'o', 'n', 'r', 's', 'h' };

// Whether the next hop that the agent found is this socket's. The agent asks as a socket does that is bound to no device
// and has no mark. What others send leaves by the datagram's device, and the stack, which heeds both, finds next hops
// there. Addresses of this machine are the same for all. And a mark need not be one for routes: where no route leads
// without it, or one by a tunnel, which may encrypt, nothing is sent.
static __always_inline _Bool is_for(const struct context *context, const struct hop *hop)
{
	if (hop->ifindex == LOOPBACK_IFINDEX)
		return 1;
	if (context->bound)
		return !context->mark && hop->ifindex == context->ifindex;
	return !context->mark || !hop->ifindex;
}

// Finds where a member's packets go.
static __always_inline void look_up(struct context *context, struct peer *peer)
{
	struct member *member = &peer->member;
	struct target target = { .family = context->is_ipv6 ? AF_INET6 : AF_INET };
	__builtin_memcpy(target.address, member->address, sizeof target.address);
	struct hop *hop = bpf_map_lookup_elem(&hops, &target);
	if (hop && is_for(context, hop)) {
		__builtin_memcpy(member->mac, hop->mac, sizeof member->mac);
		member->ifindex = hop->ifindex;
		peer->found = context->moment;
		return;
	}
	// A datagram that stays on this machine is not for one elsewhere: `leave_by` refuses that.
	member->ifindex = hop && context->ifindex == LOOPBACK_IFINDEX ? hop->ifindex : context->ifindex;
	if (context->ifindex == LOOPBACK_IFINDEX)
		__builtin_memset(member->mac, 0, sizeof member->mac);
	else
		__builtin_memcpy(member->mac, nobody, sizeof member->mac);
	if (!hop && peer->asked != context->moment) {
		peer->asked = context->moment;
		want(member, target.family);
	}
}

// Whether the packet can leave by that device; it is its then. By the one where it is it can: the stack has seen to that.
// By number 0, which is no device's, it cannot.
// A packet from this machine to itself is nobody else's: its source may be 127.0.0.1, and what comes to loopback from
// elsewhere the stack drops.
static __always_inline _Bool leave_by(struct context *context, __u32 ifindex)
{
	if (ifindex == context->from)
		return context->fits;
	struct device *device = bpf_map_lookup_elem(&devices, &ifindex);
	struct ethhdr *eth = (void *)(long)context->skb->data;
	if (!device || (void *)(eth + 1) > (void *)(long)context->skb->data_end)
		return 0;
	__builtin_memcpy(eth->h_source, device->mac, sizeof device->mac);
	context->from = ifindex;
	context->fits = ifindex == context->ifindex ||
			((ifindex == LOOPBACK_IFINDEX) == (context->ifindex == LOOPBACK_IFINDEX) &&
			 context->bytes <= device->mtu_bytes);
	return context->fits;
}

// Addresses the packet to a member.
static __always_inline _Bool address_to(struct context *context, struct peer *peer)
{
	return context->is_ipv6 ? frame_write_ipv6(context->skb, &context->frame, &peer->member)
				: frame_write_ipv4(context->skb, &context->frame, &peer->member);
}

static long send_one(__u32 i, struct context *context)
{
	struct peer *peer = &context->list->peers[i & (MEMBERS_MAX - 1)];
	if (peer->found != context->moment)
		look_up(context, peer);
	if (!leave_by(context, peer->member.ifindex)) {
		context->refused += context->frame.packets;
		return 0;
	}
	if (!address_to(context, peer))
		return 1;
	context->refused += frame_clone(context->skb, &context->frame, &peer->member, peer->member.ifindex);
	return 0;
}

// Takes so many packets of what the control group may send; whether it may.
static __always_inline _Bool may_send(struct group *group, __u64 packets)
{
	if (!packets_per_second_max)
		return 1;
	struct usage *usage = usage_of(group->cgroup);
	if (!usage)
		return 0;
	__u64 now_ns = bpf_ktime_get_ns(), tokens = usage->tokens, passed = now_ns - usage->at_ns;
	// Another processor may have counted later than that.
	if ((__s64)passed < 0)
		passed = 0;
	if (passed > SECOND_NS) {
		passed = SECOND_NS;
		usage->at_ns = now_ns - SECOND_NS;
	}
	// Whole packets; what is left of the time counts the next time.
	__u64 gained = packets_per_second_max * (passed >> 10) / (SECOND_NS >> 10);
	usage->at_ns += gained * (SECOND_NS >> 10) / packets_per_second_max << 10;
	tokens += gained;
	if (tokens > packets_per_second_max)
		tokens = packets_per_second_max;
	_Bool may = packets <= tokens;
	usage->tokens = may ? tokens - packets : tokens;
	if (!may)
		usage->refused++;
	return may;
}

// Whether the datagram is the socket's own. What a tunnel wraps has the socket of what is in it (VXLAN, say:
// net/ipv4/ip_tunnel_core.c, iptunnel_xmit), and comes from the tunnel's port. A socket that was closed has none
// any more (net/ipv4/udp.c, udp_lib_unhash); what it has sent may have waited for its next hop.
static __always_inline _Bool is_sent_by(struct __sk_buff *skb, struct bpf_sock *sk, _Bool is_ipv6)
{
	__u32 offset = is_ipv6 ? offsetof(struct frame_ipv6, udp.source) : offsetof(struct frame_ipv4, udp.source);
	__be16 port = 0;
	if (bpf_skb_load_bytes(skb, offset, &port, sizeof port))
		return 0;
	return !sk->src_port || bpf_ntohs(port) == sk->src_port;
}

SEC("classifier")
int sendgrp_fan(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk ? bpf_sk_fullsock(skb->sk) : NULL;
	if (!sk)
		return TC_ACT_UNSPEC;
	struct group *group = bpf_sk_storage_get(&groups, sk, 0, 0);
	if (!group)
		return TC_ACT_UNSPEC;
	struct context context = {
		.skb = skb, .ifindex = skb->ifindex, .from = skb->ifindex, .fits = 1,
		.bound = sk->bound_dev_if, .mark = sk->mark,
	};
	context.list = list_of(sk, group->half, 0);
	__u32 count = group->count;
	if (!context.list || !count || count > MEMBERS_MAX)
		return TC_ACT_UNSPEC;
	context.is_ipv6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	if (!context.is_ipv6 && skb->protocol != bpf_htons(ETH_P_IP))
		return TC_ACT_UNSPEC;
	// A socket of IPv6 may send to an IPv4 address, which its members' are not: that is to whom it says alone.
	if (context.is_ipv6 != (sk->family == AF_INET6))
		return TC_ACT_UNSPEC;
	// A fragment, say, is nobody's but whose it is.
	if (!(context.is_ipv6 ? frame_read_ipv6(skb, &context.frame) : frame_read_ipv4(skb, &context.frame)))
		return TC_ACT_UNSPEC;
	if (!is_sent_by(skb, sk, context.is_ipv6))
		return TC_ACT_UNSPEC;
	__u32 packets = context.frame.packets, header = context.is_ipv6 ? 40 + 8 : 20 + 8;
	context.bytes = skb->gso_size ? skb->gso_size + header : skb->len - sizeof(struct ethhdr);
	if (!may_send(group, (__u64)packets * count)) {
		__sync_fetch_and_add(&group->over_quota, 1);
		return TC_ACT_SHOT;
	}
	// Never 0, which says that nothing was found yet.
	context.moment = (__u32)(bpf_ktime_get_ns() >> MOMENT_SHIFT) | 1U << 31;
	bpf_set_hash_invalid(skb);
	bpf_loop(count, send_one, &context, 0);
	__sync_fetch_and_add(&group->sends, 1);
	__sync_fetch_and_add(&group->packets, (__u64)packets * count - context.refused);
	__sync_fetch_and_add(&group->refused, context.refused);
	// As in group.bpf.c: freed, and sent as far as the socket knows.
	return bpf_redirect(0, 0);
}

// A clone whose next hop is not known goes to the stack, which finds it.
static __always_inline int pass(struct __sk_buff *skb)
{
	struct ethhdr *eth = (void *)(long)skb->data;
	if ((void *)(eth + 1) > (void *)(long)skb->data_end || eth->h_dest[0] != nobody[0] ||
	    eth->h_dest[1] != nobody[1] || eth->h_dest[2] != nobody[2] || eth->h_dest[3] != nobody[3] ||
	    eth->h_dest[4] != nobody[4] || eth->h_dest[5] != nobody[5])
		return TC_ACT_UNSPEC;
	return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
}

// Apart from `sendgrp_fan`, as in group.bpf.c.
SEC("classifier")
int onrush_sendgrp(struct __sk_buff *skb)
{
	if (!skb->sk)
		return pass(skb);
	struct bpf_sock *sk = bpf_sk_fullsock(skb->sk);
	if (!sk)
		return TC_ACT_UNSPEC;
	struct group *group = bpf_sk_storage_get(&groups, sk, 0, 0);
	if (group && group->count)
		bpf_tail_call(skb, &next, 0);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual MIT/GPL";
