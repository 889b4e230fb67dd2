// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Fanning out: one packet, addressed anew and cloned for each member of a group.
//
// A `frame` is what stays the same from member to member: where the headers are, and each checksum less
// the address and port that change. A member brings the sums of its own, so that a checksum is two additions
// and no helper is called but the one that clones.
//
// The UDP checksum means different things, and the packet says only in part which:
//  * CHECKSUM_PARTIAL: the field holds the pseudo header's sum, and the device does the rest. The port is
//    no part of that.
//  * A train on a device without checksum offload says CHECKSUM_NONE and holds the same, because cutting
//    will do the rest (net/ipv4/udp.c, udp_send_skb).
//  * Else it is the checksum itself.
// ip_summed cannot be read here; a helper that heeds it shows it (see `checks_in_full`).

#ifndef ONRUSH_FAN_H
#define ONRUSH_FAN_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// A member. Mirrored by `Slot` in crates/group/src/table.rs.
struct member {
	__be32 address[4]; /* an IPv4 address is the first */
	__be16 port;
	__u8 mac[6];
	__u32 ifindex;
	__u16 sum_address; /* one's complement, as read from memory */
	__u16 sum_port;
	__u32 refused; /* packets */
	__s32 error; /* of the last refused */
};

enum sum { SUM_PSEUDO, SUM_FULL, SUM_ABSENT };

struct frame {
	__u32 sum_ip; /* the IPv4 header's, without the destination */
	__u32 sum_udp; /* UDP's, without what changes */
	__u32 sum; /* enum sum */
	__u32 packets; /* of the train */
};

struct frame_ipv4 {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
} __attribute__((packed));

struct frame_ipv6 {
	struct ethhdr eth;
	struct ipv6hdr ip;
	struct udphdr udp;
} __attribute__((packed));

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

// The one's complement sum of so many 16-bit words, which are at most a few.
static __always_inline __u32 sum_of(const void *bytes, int words)
{
	const __u16 *word = bytes;
	__u32 sum = 0;
#pragma unroll
	for (int i = 0; i < words; i++)
		sum += word[i];
	return sum;
}

// Packets of a train. Who took it over from a virtual machine has not counted them (SKB_GSO_DODGY: the segments
// are 0). `headers` are the bytes before the payload.
static __always_inline __u32 packets_of(struct __sk_buff *skb, __u32 headers)
{
	__u32 size = skb->gso_size, bytes = skb->len - headers;
	if (skb->gso_segs || !size)
		return skb->gso_segs ? skb->gso_segs : 1;
	return bytes > size ? (bytes + size - 1) / size : 1;
}

// Whether the UDP checksum at `offset` is the checksum itself. The helper changes it for a port that
// changes, unless the packet says CHECKSUM_PARTIAL. Invalidates packet pointers.
static __always_inline _Bool checks_in_full(struct __sk_buff *skb, __u32 offset)
{
	__u16 before = 0, after = 0;
	if (skb->gso_size)
		return 0;
	bpf_skb_load_bytes(skb, offset, &before, sizeof before);
	bpf_l4_csum_replace(skb, offset, 0, 1, 2);
	bpf_skb_load_bytes(skb, offset, &after, sizeof after);
	if (before == after)
		return 0;
	bpf_skb_store_bytes(skb, offset, &before, sizeof before, 0);
	return 1;
}

// What a UDP checksum is without the destination that it has now.
static __always_inline void frame_sum(struct frame *frame, _Bool in_full, __u16 check, __u32 address,
				      __be16 port)
{
	__u16 less_address = ~fold(address);
	__u16 less_port = ~port;
	if (in_full) {
		__u16 sum = ~check;
		frame->sum = SUM_FULL;
		frame->sum_udp = (__u32)sum + less_address + less_port;
	} else {
		frame->sum = SUM_PSEUDO;
		frame->sum_udp = (__u32)check + less_address;
	}
}

static __always_inline __u16 frame_check(const struct frame *frame, const struct member *member)
{
	if (frame->sum == SUM_PSEUDO)
		return fold(frame->sum_udp + member->sum_address);
	if (frame->sum == SUM_ABSENT)
		return 0;
	__u16 check = ~fold(frame->sum_udp + member->sum_address + member->sum_port);
	return check ? check : 0xffff;
}

// Reads a packet of UDP over IPv4 that is whole and has no options. Invalidates packet pointers.
static __always_inline _Bool frame_read_ipv4(struct __sk_buff *skb, struct frame *frame)
{
	_Bool in_full = checks_in_full(skb, offsetof(struct frame_ipv4, udp.check));
	struct frame_ipv4 *f = (void *)(long)skb->data;
	if ((void *)(f + 1) > (void *)(long)skb->data_end || f->ip.version != 4 || f->ip.ihl != 5 ||
	    f->ip.protocol != IPPROTO_UDP || f->ip.frag_off & bpf_htons(0x3fff))
		return 0;
	__u32 address = sum_of(&f->ip.daddr, 2);
	__u16 sum_ip = ~f->ip.check, less_address = ~fold(address);
	frame->sum_ip = (__u32)sum_ip + less_address;
	frame->packets = packets_of(skb, sizeof *f);
	frame_sum(frame, in_full, f->udp.check, address, f->udp.dest);
	// Without one (SO_NO_CHECK).
	if (in_full && !f->udp.check)
		frame->sum = SUM_ABSENT;
	return 1;
}

// The same over IPv6, without extension headers.
static __always_inline _Bool frame_read_ipv6(struct __sk_buff *skb, struct frame *frame)
{
	_Bool in_full = checks_in_full(skb, offsetof(struct frame_ipv6, udp.check));
	struct frame_ipv6 *f = (void *)(long)skb->data;
	if ((void *)(f + 1) > (void *)(long)skb->data_end || f->ip.version != 6 ||
	    f->ip.nexthdr != IPPROTO_UDP)
		return 0;
	frame->packets = packets_of(skb, sizeof *f);
	frame_sum(frame, in_full, f->udp.check, sum_of(&f->ip.daddr, 8), f->udp.dest);
	// As above: tunnels may do without (RFC 6935).
	if (in_full && !f->udp.check)
		frame->sum = SUM_ABSENT;
	return 1;
}

// Addresses the packet to a member.
static __always_inline _Bool frame_write_ipv4(struct __sk_buff *skb, const struct frame *frame,
					      const struct member *member)
{
	struct frame_ipv4 *f = (void *)(long)skb->data;
	if ((void *)(f + 1) > (void *)(long)skb->data_end)
		return 0;
	__builtin_memcpy(f->eth.h_dest, member->mac, sizeof member->mac);
	f->ip.daddr = member->address[0];
	f->ip.check = ~fold(frame->sum_ip + member->sum_address);
	f->udp.dest = member->port;
	f->udp.check = frame_check(frame, member);
	return 1;
}

static __always_inline _Bool frame_write_ipv6(struct __sk_buff *skb, const struct frame *frame,
					      const struct member *member)
{
	struct frame_ipv6 *f = (void *)(long)skb->data;
	if ((void *)(f + 1) > (void *)(long)skb->data_end)
		return 0;
	__builtin_memcpy(f->eth.h_dest, member->mac, sizeof member->mac);
	__builtin_memcpy(&f->ip.daddr, member->address, sizeof member->address);
	f->udp.dest = member->port;
	f->udp.check = frame_check(frame, member);
	return 1;
}

// Clones the packet, as it is now addressed, to a device; how many packets were refused. Invalidates packet
// pointers, and leaves the head writable (net/core/filter.c, bpf_clone_redirect).
static __always_inline __u32 frame_clone(struct __sk_buff *skb, const struct frame *frame,
					 struct member *member, __u32 ifindex)
{
	int error = bpf_clone_redirect(skb, ifindex, 0);
	if (!error)
		return 0;
	member->refused += frame->packets;
	member->error = error;
	return frame->packets;
}

#endif
