// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Group unicast at tc egress: the packet that a group's socket sends to one member becomes a packet for
// each member of the pass.
//
// The sender says in its `pass` which members the next packet is for, and then sends that packet to one of
// them. It comes here in the same system call, with route, source address, checksum and length as the stack
// made them. It is cloned for each member, so that each refusal is seen: what the packet itself would meet on
// its way, nobody is told of. Then it is redirected to a device that cannot be, which frees it: the socket
// takes that for sent, where a drop would be an error of its own (UdpSndbufErrors). Clones come here again;
// they have no socket, and pass. What is not the announced packet of a group's socket passes too.
//
// One program serves all groups of a device, whoever's they are: what a group shares with it is found by its
// socket's cookie, so that foreign packets pay for one look-up however many groups there are. It is attached,
// or tail-called, with the life of the groups: no pin, no filter, no queue discipline.

#include "fan.h"

// Mirrored by `Pass` in crates/group/src/table.rs. Shared with the sender by mmap.
struct pass {
	__u32 armed; /* the next packet is the one */
	__u32 first; /* slot */
	__u32 count;
	__u32 is_ipv6;
	__be32 address[4]; /* of the member that it is sent to */
	__be16 port;
	__u16 lane; /* whose members they are */
	__u32 ifindex; /* where the packet is expected */
	__u64 clones; /* so far */
	__u64 refused; /* packets, so far */
};

// What a sender makes and puts into the maps below. How many members an array has room for is its own
// affair (BPF_F_INNER_MAP). Sizes instead of types: clang 14 leaves the types of what is only pointed to
// undefined.
struct pass_array {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct pass));
};

struct member_array {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct member));
};

// Mirrored by `LaneName` in crates/group/src/table.rs.
struct lane {
	__u64 cookie;
	__u32 number;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1); /* the loader says how many */
	__type(key, __u64);
	__array(values, struct pass_array);
} passes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1); /* the loader says how many */
	__type(key, struct lane);
	__array(values, struct member_array);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

struct context {
	struct __sk_buff *skb;
	struct pass *pass;
	void *members;
	struct frame frame;
	__u32 first;
	__u32 error;
};

static __always_inline struct pass *pass_of(__u64 cookie)
{
	__u32 zero = 0;
	void *array = bpf_map_lookup_elem(&passes, &cookie);
	return array ? bpf_map_lookup_elem(array, &zero) : NULL;
}

static __always_inline long one(__u32 i, struct context *context, _Bool is_ipv6)
{
	__u32 slot = context->first + i;
	struct member *member = bpf_map_lookup_elem(context->members, &slot);
	_Bool written = member && (is_ipv6 ? frame_write_ipv6(context->skb, &context->frame, member)
					   : frame_write_ipv4(context->skb, &context->frame, member));
	if (!written) {
		context->error = 1;
		return 1;
	}
	context->pass->refused += frame_clone(context->skb, &context->frame, member,
					      context->skb->ifindex);
	return 0;
}

static long one_ipv4(__u32 i, struct context *context)
{
	return one(i, context, 0);
}

static long one_ipv6(__u32 i, struct context *context)
{
	return one(i, context, 1);
}

static __always_inline _Bool is_announced(struct __sk_buff *skb, const struct pass *pass)
{
	if (pass->is_ipv6) {
		struct frame_ipv6 *f = (void *)(long)skb->data;
		if ((void *)(f + 1) > (void *)(long)skb->data_end ||
		    skb->protocol != bpf_htons(ETH_P_IPV6) || f->udp.dest != pass->port)
			return 0;
		const __be32 *to = f->ip.daddr.in6_u.u6_addr32;
		return to[0] == pass->address[0] && to[1] == pass->address[1] &&
		       to[2] == pass->address[2] && to[3] == pass->address[3];
	}
	struct frame_ipv4 *f = (void *)(long)skb->data;
	return (void *)(f + 1) <= (void *)(long)skb->data_end &&
	       skb->protocol == bpf_htons(ETH_P_IP) && f->udp.dest == pass->port &&
	       f->ip.daddr == pass->address[0];
}

SEC("classifier")
int fan(struct __sk_buff *skb)
{
	struct lane lane = { .cookie = bpf_get_socket_cookie(skb) };
	struct pass *pass = pass_of(lane.cookie);
	if (!pass || !is_announced(skb, pass))
		return TC_ACT_UNSPEC;
	lane.number = pass->lane;
	void *array = bpf_map_lookup_elem(&members, &lane);
	if (!array)
		return TC_ACT_UNSPEC;
	struct context context = { .skb = skb, .pass = pass, .members = array, .first = pass->first };
	__u32 clones = pass->count;
	_Bool is_ipv6 = pass->is_ipv6;
	if (!(is_ipv6 ? frame_read_ipv6(skb, &context.frame) : frame_read_ipv4(skb, &context.frame)))
		return TC_ACT_UNSPEC;
	// The sender looks at this when its call is over.
	pass->armed = 0;
	// Else queues would take all clones for one flow.
	bpf_set_hash_invalid(skb);
	if (is_ipv6)
		bpf_loop(clones, one_ipv6, &context, 0);
	else
		bpf_loop(clones, one_ipv4, &context, 0);
	pass->clones += clones;
	// skb_do_redirect (net/core/filter.c) frees what is for a device that is not there, and no
	// device has the number 0.
	return context.error ? TC_ACT_SHOT : bpf_redirect(0, 0);
}

// Apart from `fan`, because a program that writes to packets makes each packet's head its own first: clones
// would pay for that. Its name says which layout of the maps it has, for those who find it at a device.
SEC("classifier")
int onrush_groups_1(struct __sk_buff *skb)
{
	if (!skb->sk)
		return TC_ACT_UNSPEC;
	struct pass *pass = pass_of(bpf_get_socket_cookie(skb));
	if (pass && pass->armed && pass->ifindex == skb->ifindex)
		bpf_tail_call(skb, &next, 0);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual MIT/GPL";
