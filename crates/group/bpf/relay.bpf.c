// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The relay at tc ingress: a packet that arrives for the relay becomes a packet for each member, and is gone.
//
// The packet is addressed anew in place and cloned for each member, lane by lane: a lane's members are sent to through
// one device from one address and port. Nothing of it enters a user's process.
//
// A packet goes round in slices: what a device's far end, or its queue, takes at once is less than there may be members.
// After a slice the packet is put behind the packets that it has become, in this processor's queue of arrivals, with
// its place in the mark; so it comes back here when those are out of the way, and their memory is still in the cache.
// One packet is on its way at a time, in the order of their numbers; others wait in that same queue.
//
// Members and lanes lie in two halves. `control` says which half counts; the packet that is on its way says in which
// half it is, so that the other may be written, and this one as soon as it has left.
//
// Who joins or leaves alone is written into the half that counts: behind a lane's last member, where there is room up to
// the next lane, or where another has left. A place without a device is nobody's. What a member was given is counted from
// the first packet that finds it, which is written down beside it.

#include "fan.h"

#define AF_INET 2
#define AF_INET6 10
#define LANES_MAX 64
#define TTL 64
#define WAITING_MAX 32 /* packets: each goes round once a slice, at the cost of two or three clones */
#define MARK 0x5b /* the upper seven bits of a packet's that comes back; then its number, and the next member */
#define LOST_NS 1000000000ll /* as in ingress.rs */
#define ALL 0xffffffff
#define IN_ORDER 1 /* as in ingress.rs */
#define AT_ONCE 2
#define EMSGSIZE_ 90
#define FRESH (-4096) /* as the error of a member whom no packet has found yet; no errno is that */

// Set by the loader before the program is verified.
const volatile __u32 MEMBERS_MAX = 1;
const volatile __u32 SLICE = 250; /* packets */
const volatile __u32 IS_IPV4 = 0; /* what is taken */
const volatile __u32 IS_IPV6 = 0;
const volatile __u32 IS_ANY = 0; /* sent to any address of this machine */
const volatile __be32 ADDRESS_0 = 0, ADDRESS_1 = 0, ADDRESS_2 = 0, ADDRESS_3 = 0;
const volatile __be32 SENDER_0 = 0, SENDER_1 = 0, SENDER_2 = 0, SENDER_3 = 0; /* the only one, if any */
const volatile __u32 PORT = 0; /* as in the packet */
const volatile __u64 SENDER_KEPT_NS = 0; /* of silence before another may send; 0: everybody may */

// Mirrored by `Lane` in crates/group/src/arrival.rs.
struct lane {
	__be32 source[4];
	__be16 port;
	__u8 mac[6];
	__u32 ifindex;
	__u32 first; /* member, within the half; lanes follow upon each other, with room between them */
	__u32 count; /* places that are, or were, somebody's */
	__u32 is_ipv6;
	__u32 slice; /* packets that the device takes at once */
	__u32 cuts; /* trains are cut before the device */
	__u32 members; /* in these places */
	__u32 mtu_bytes; /* of the way to them, the device's or less */
};

// Mirrored by `Since`: what the half had been given when a member was found for the first time.
struct since {
	__u64 packets;
	__u64 overruns;
};

// Mirrored by `Control`. Written by the loader alone.
struct control {
	__u32 active; /* half */
	__u32 lanes[2];
	__u32 members[2];
	__u32 leaving; /* what comes is the next program's: IN_ORDER, once nothing is on its way here; AT_ONCE */
};

// Mirrored by `Running`. Written here alone.
struct running {
	__u32 head; /* number of the packet whose turn it is */
	__u32 tail; /* that the next has */
	__u32 half; /* where the packet is that is on its way */
	__u32 ports; /* its ports, which nobody else's has, nor its number */
	__u64 at_ns; /* when it was last seen */
	__u64 packets[2]; /* that were for the members of a half, since ever */
	__u64 overruns[2]; /* of these, what nobody got: too many waited */
	__u8 skipped[256]; /* numbers of packets that did not fit where they had to wait */
};

// Mirrored by `Heard`.
struct heard {
	struct bpf_spin_lock lock;
	__u16 sequence_next;
	__u8 payload_type;
	__u8 is_rtp; /* the last one was */
	__u64 datagrams;
	__u64 bytes;
	__u64 rtp;
	__u64 transport_streams;
	__u64 missing;
	__u64 behind;
	__u64 restarts;
	__u64 source_changes;
	__u64 ssrc_changes;
	__u64 arrived_ns; /* the last */
	__u64 skbs;
	__u64 clones; /* packets */
	__u64 refused; /* packets */
	__u32 ssrc;
	__u32 timestamp;
	__be32 from[4];
	__be16 from_port;
	__u16 from_is_ipv6;
	__u32 is_stream; /* the sender has sent RTP, or what begins as a transport packet */
	__u64 from_others; /* datagrams that were refused because they are not the sender's */
	__be32 other[4]; /* who sent the first of them since the sender came */
	__be16 other_port;
	__u16 other_is_ipv6;
	__u32 has_other;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} controls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct running);
} runnings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * LANES_MAX);
	__type(key, __u32);
	__type(value, struct lane);
} lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the loader says: twice as many as there may be */
	__type(key, __u32);
	__type(value, struct member);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* as of `members` */
	__type(key, __u32);
	__type(value, struct since);
} sinces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct heard);
} heards SEC(".maps");

struct context {
	struct __sk_buff *skb;
	struct frame frame;
	__u32 is_ipv6;
	__u32 bytes; /* of each packet, from the IP header on */
	__u32 mtu_bytes; /* of the lane */
	__u32 half;
	__u32 position; /* the next member, within the half */
	__u32 budget; /* packets that are left of the slice */
	__u32 is_more; /* members are left */
	__u32 first;
	__u64 clones;
	__u64 refused;
};

struct rtp {
	__u8 version;
	__u8 kind;
	__be16 sequence;
	__be32 timestamp;
	__be32 ssrc;
};

// The member is counted from this packet on.
static __always_inline void found(struct context *context, struct member *member, __u32 slot)
{
	__u32 zero = 0;
	struct running *running = bpf_map_lookup_elem(&runnings, &zero);
	struct since *since = bpf_map_lookup_elem(&sinces, &slot);
	if (!running || !since)
		return;
	since->packets = running->packets[context->half & 1];
	since->overruns = running->overruns[context->half & 1];
	member->error = 0;
}

static long one_member(__u32 i, struct context *context)
{
	__u32 slot = context->first + i;
	struct member *member = bpf_map_lookup_elem(&members, &slot);
	if (!member)
		return 1;
	if (!member->ifindex)
		return 0;
	if (member->error == FRESH)
		found(context, member, slot);
	if (context->bytes > context->mtu_bytes) {
		// Whoever forwards answers so (RFC 1191), and no helper that clones looks.
		member->refused += context->frame.packets;
		member->error = -EMSGSIZE_;
		context->refused += context->frame.packets;
		context->clones += context->frame.packets;
		return 0;
	}
	_Bool written = context->is_ipv6 ? frame_write_ipv6(context->skb, &context->frame, member)
					 : frame_write_ipv4(context->skb, &context->frame, member);
	if (!written)
		return 1;
	context->refused += frame_clone(context->skb, &context->frame, member, member->ifindex);
	context->clones += context->frame.packets;
	return 0;
}

// Gives the packet another sender, and the sums with it. A full sum holds the sender's port.
static __always_inline _Bool from_lane_ipv4(struct context *context, const struct lane *lane)
{
	struct frame_ipv4 *f = (void *)(long)context->skb->data;
	struct frame *frame = &context->frame;
	if ((void *)(f + 1) > (void *)(long)context->skb->data_end)
		return 0;
	__u32 now = sum_of(lane->source, 2);
	__u16 less = ~fold(sum_of(&f->ip.saddr, 2)), less_port = ~f->udp.source;
	__u16 *life = (__u16 *)&f->ip.ttl, less_life = ~*life;
	f->ip.ttl = TTL;
	frame->sum_ip = fold(frame->sum_ip) + fold(now) + less + less_life + *life;
	frame->sum_udp = fold(frame->sum_udp) + fold(now) + less;
	if (frame->sum == SUM_FULL)
		frame->sum_udp += lane->port + less_port;
	f->ip.saddr = lane->source[0];
	f->udp.source = lane->port;
	__builtin_memcpy(f->eth.h_source, lane->mac, sizeof lane->mac);
	return 1;
}

static __always_inline _Bool from_lane_ipv6(struct context *context, const struct lane *lane)
{
	struct frame_ipv6 *f = (void *)(long)context->skb->data;
	struct frame *frame = &context->frame;
	if ((void *)(f + 1) > (void *)(long)context->skb->data_end)
		return 0;
	__u16 now = fold(sum_of(lane->source, 8));
	__u16 less = ~fold(sum_of(&f->ip.saddr, 8)), less_port = ~f->udp.source;
	frame->sum_udp = fold(frame->sum_udp) + now + less;
	if (frame->sum == SUM_FULL)
		frame->sum_udp += lane->port + less_port;
	f->ip.hop_limit = TTL;
	__builtin_memcpy(&f->ip.saddr, lane->source, sizeof lane->source);
	f->udp.source = lane->port;
	__builtin_memcpy(f->eth.h_source, lane->mac, sizeof lane->mac);
	return 1;
}

static long one_lane(__u32 i, struct context *context)
{
	__u32 slot = context->half * LANES_MAX + i;
	struct lane *lane = bpf_map_lookup_elem(&lanes, &slot);
	if (!lane)
		return 1;
	__u32 end = lane->first + lane->count;
	if (context->position >= end)
		return 0;
	if (context->position < lane->first)
		context->position = lane->first;
	__u32 count = end - context->position;
	if (lane->is_ipv6 != context->is_ipv6) {
		// What came by one IP version cannot go on by the other.
		__u64 packets = (__u64)lane->members * context->frame.packets;
		context->clones += packets;
		context->refused += packets;
		context->position = end;
		return 0;
	}
	__u32 each = lane->cuts ? context->frame.packets : 1;
	__u32 room = (context->budget < lane->slice ? context->budget : lane->slice) / each;
	if (!room && context->budget == SLICE)
		room = 1;
	if (count > room && context->budget != ALL) {
		count = room;
		context->is_more = 1;
	}
	if (!count)
		return 1;
	if (!(context->is_ipv6 ? from_lane_ipv6(context, lane) : from_lane_ipv4(context, lane)))
		return 1;
	context->mtu_bytes = lane->mtu_bytes;
	context->first = context->half * MEMBERS_MAX + context->position;
	bpf_loop(count, one_member, context, 0);
	context->position += count;
	if (context->budget != ALL)
		context->budget -= context->budget < count * each ? context->budget : count * each;
	return context->is_more != 0;
}

static __always_inline _Bool is_address(const __be32 *to, _Bool is_ipv6)
{
	if (!is_ipv6)
		return to[0] == ADDRESS_0;
	return to[0] == ADDRESS_0 && to[1] == ADDRESS_1 && to[2] == ADDRESS_2 && to[3] == ADDRESS_3;
}

static __always_inline _Bool is_sender(const __be32 *from, _Bool is_ipv6)
{
	if (!(SENDER_0 | SENDER_1 | SENDER_2 | SENDER_3))
		return 1;
	if (!is_ipv6)
		return from[0] == SENDER_0;
	return from[0] == SENDER_0 && from[1] == SENDER_1 && from[2] == SENDER_2 &&
	       from[3] == SENDER_3;
}

// Whether the packet goes on to another machine, if this one is a router or has containers. The kernel's own tables
// say so. A device that forwards nothing says only that: what comes there is for this machine, or nobody's.
static __always_inline _Bool is_forwarded(struct __sk_buff *skb, const __be32 *from, const __be32 *to,
					  _Bool is_ipv6)
{
	struct bpf_fib_lookup way = {
		.family = is_ipv6 ? AF_INET6 : AF_INET,
		.l4_protocol = IPPROTO_UDP,
		.dport = PORT,
		.ifindex = skb->ifindex,
	};
	if (is_ipv6) {
		__builtin_memcpy(way.ipv6_src, from, sizeof way.ipv6_src);
		__builtin_memcpy(way.ipv6_dst, to, sizeof way.ipv6_dst);
	} else {
		way.ipv4_src = from[0];
		way.ipv4_dst = to[0];
	}
	long answer = bpf_fib_lookup(skb, &way, sizeof way, 0);
	return answer != BPF_FIB_LKUP_RET_NOT_FWDED && answer != BPF_FIB_LKUP_RET_FWD_DISABLED;
}

// Whether it is for one of this machine's addresses.
static __always_inline _Bool is_for_us(struct __sk_buff *skb, const __be32 *from, const __be32 *to,
				       _Bool is_ipv6)
{
	return skb->pkt_type == 0 && !is_forwarded(skb, from, to, is_ipv6);
}

// Whether the packet is for the relay. Who sent it is written to `from` and `port`.
static __always_inline _Bool is_ours(struct __sk_buff *skb, __be32 *from, __be16 *port,
				     __u32 *is_ipv6)
{
	// The tag is off already, and says what it is: another network's. It comes again at that network's own device.
	if (skb->vlan_present)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP) && IS_IPV4) {
		struct frame_ipv4 *f = (void *)(long)skb->data;
		if ((void *)(f + 1) > (void *)(long)skb->data_end || f->ip.ihl != 5 ||
		    f->ip.protocol != IPPROTO_UDP || f->udp.dest != PORT ||
		    f->ip.frag_off & bpf_htons(0x3fff))
			return 0;
		__be32 to = f->ip.daddr;
		from[0] = f->ip.saddr;
		*port = f->udp.source;
		*is_ipv6 = 0;
		return (IS_ANY ? is_for_us(skb, from, &to, 0) : is_address(&to, 0)) && is_sender(from, 0);
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6) && IS_IPV6) {
		struct frame_ipv6 *f = (void *)(long)skb->data;
		if ((void *)(f + 1) > (void *)(long)skb->data_end ||
		    f->ip.nexthdr != IPPROTO_UDP || f->udp.dest != PORT)
			return 0;
		__be32 to[4];
		__builtin_memcpy(from, &f->ip.saddr, 16);
		__builtin_memcpy(to, &f->ip.daddr, 16);
		*port = f->udp.source;
		*is_ipv6 = 1;
		return (IS_ANY ? is_for_us(skb, from, to, 1) : is_address(to, 1)) && is_sender(from, 1);
	}
	return 0;
}

// As `Follower` in crates/wire/src/live/follow.rs. Called with the lock held.
static __always_inline void follow(struct heard *heard, const struct rtp *rtp, __u16 packets)
{
	__u16 got = bpf_ntohs(rtp->sequence);
	__u32 ssrc = bpf_ntohl(rtp->ssrc);
	__u16 ahead = got - heard->sequence_next, behind = heard->sequence_next - got;
	_Bool is_next = 1;
	if (heard->rtp == 0) {
		/* the first */
	} else if (heard->ssrc != ssrc) {
		heard->ssrc_changes++;
	} else if (ahead && ahead <= 3000) {
		heard->missing += ahead;
	} else if (ahead && behind <= 100) {
		heard->behind++;
		is_next = 0;
	} else if (ahead) {
		heard->restarts++;
	}
	if (is_next)
		heard->sequence_next = got + packets;
	heard->rtp += packets;
	heard->ssrc = ssrc;
	heard->timestamp = bpf_ntohl(rtp->timestamp);
	heard->payload_type = rtp->kind & 0x7f;
}

// Whether the datagrams are the stream's: as `SenderLock` in crates/wire/src/live/sender.rs. Called
// with the lock held.
static __always_inline _Bool is_refused(struct heard *heard, const __be32 *from, __be16 port,
					__u32 is_ipv6, _Bool is_stream, __u64 now_ns)
{
	// Another processor may have heard the sender since.
	if (!SENDER_KEPT_NS || (__s64)(now_ns - heard->arrived_ns) >= (__s64)SENDER_KEPT_NS)
		return 0;
	if (!heard->is_stream && is_stream)
		return 0;
	if (!heard->has_other) {
		heard->has_other = 1;
		heard->other[0] = from[0];
		heard->other[1] = from[1];
		heard->other[2] = from[2];
		heard->other[3] = from[3];
		heard->other_port = port;
		heard->other_is_ipv6 = is_ipv6;
	}
	return 1;
}

// Bytes before a payload.
static __always_inline __u32 headers_of(_Bool is_ipv6)
{
	return is_ipv6 ? sizeof(struct frame_ipv6) : sizeof(struct frame_ipv4);
}

// Whether the packet is the stream's.
static __always_inline _Bool hear(struct heard *heard, struct __sk_buff *skb, const __be32 *from,
				  __be16 port, __u32 is_ipv6, __u64 now_ns)
{
	__u32 header = headers_of(is_ipv6), packets = packets_of(skb, header);
	__u32 bytes = skb->len - header;
	struct rtp rtp = {};
	_Bool is_read = !bpf_skb_load_bytes(skb, header, &rtp, sizeof rtp);
	_Bool is_rtp = is_read && rtp.version >> 6 == 2 && (rtp.kind < 192 || rtp.kind > 223);
	_Bool is_ts = is_read && rtp.version == 0x47;
	bpf_spin_lock(&heard->lock);
	if (heard->datagrams &&
	    (heard->from[0] != from[0] || heard->from[1] != from[1] || heard->from[2] != from[2] ||
	     heard->from[3] != from[3] || heard->from_port != port ||
	     heard->from_is_ipv6 != is_ipv6)) {
		if (is_refused(heard, from, port, is_ipv6, is_rtp || is_ts, now_ns)) {
			heard->from_others += packets;
			bpf_spin_unlock(&heard->lock);
			return 0;
		}
		heard->source_changes++;
		heard->is_stream = 0;
		heard->has_other = 0;
	}
	heard->from[0] = from[0];
	heard->from[1] = from[1];
	heard->from[2] = from[2];
	heard->from[3] = from[3];
	heard->from_port = port;
	heard->from_is_ipv6 = is_ipv6;
	heard->arrived_ns = now_ns;
	heard->datagrams += packets;
	heard->bytes += bytes;
	heard->skbs++;
	heard->is_rtp = is_rtp;
	heard->is_stream |= is_rtp || is_ts;
	if (is_rtp)
		follow(heard, &rtp, packets);
	if (is_ts)
		heard->transport_streams += packets;
	bpf_spin_unlock(&heard->lock);
	return 1;
}

// The half that counts, entered. Said before it is looked at again: who writes `active` looks at `half` afterwards.
static __always_inline void enter(volatile struct control *control, volatile struct running *running)
{
	for (int i = 0; i < 8; i++) {
		__u32 half = control->active & 1;
		__sync_lock_test_and_set(&running->half, half);
		if ((control->active & 1) == half)
			return;
	}
}

// Whether the packet whose turn it is has not been seen for so long that it never will: its device went down with it.
static __always_inline _Bool is_lost(volatile struct running *running, __u64 now_ns)
{
	// Another processor may have seen it since.
	return (__s64)(now_ns - running->at_ns) >= LOST_NS;
}

// The next packet's turn.
static __always_inline void leave(volatile struct running *running)
{
	for (int i = 0; i < WAITING_MAX; i++) {
		__u32 head = __sync_fetch_and_add(&running->head, 1) + 1;
		if (!running->skipped[head & 255])
			return;
		running->skipped[head & 255] = 0;
	}
}

// Whether a packet that has come is the next program's, if there is one: this one goes, and its process with it. What
// is on its way here stays until all members have it, and what comes meanwhile waits behind it.
static __always_inline _Bool is_next_ones(volatile struct control *control, volatile struct running *running)
{
	__u32 leaving = control->leaving;
	return leaving == AT_ONCE || (leaving == IN_ORDER && running->head == running->tail);
}

// Puts the packet, or what is left of its way, at the end of this processor's queue of arrivals; whether it fitted.
static __always_inline _Bool again(struct __sk_buff *skb, __u32 number, __u32 position)
{
	skb->mark = MARK << 25 | (number & 255) << 17 | position;
	long error = bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
	skb->mark = 0;
	return !error;
}

// Nobody gets it.
static __always_inline void overrun(struct __sk_buff *skb, struct control *control,
				    struct running *running, struct heard *heard)
{
	__u32 half = control->active & 1;
	__u32 packets = packets_of(skb, headers_of(skb->protocol == bpf_htons(ETH_P_IPV6)));
	__u64 all = (__u64)packets * control->members[half];
	__sync_fetch_and_add(&heard->clones, all);
	__sync_fetch_and_add(&heard->refused, all);
	__sync_fetch_and_add(&running->packets[half], packets);
	__sync_fetch_and_add(&running->overruns[half], packets);
}

static __always_inline __u32 ports_at(__u32 is_ipv6)
{
	return is_ipv6 ? offsetof(struct frame_ipv6, udp) : offsetof(struct frame_ipv4, udp);
}

// A slice of the packet's way from `position` on; and all of it if it could not come back. A function that is not
// static is verified once, and not for each of its callers: the loops in it take most of what the verifier looks at.
__attribute__((noinline)) int go(struct __sk_buff *skb, __u32 number, __u32 position)
{
	__u32 zero = 0;
	struct heard *heard = bpf_map_lookup_elem(&heards, &zero);
	struct control *control = bpf_map_lookup_elem(&controls, &zero);
	struct running *running = bpf_map_lookup_elem(&runnings, &zero);
	if (!heard || !control || !running)
		return TC_ACT_SHOT;
	__u32 half = running->half & 1, is_ipv6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	struct context context = {
		.skb = skb, .is_ipv6 = is_ipv6, .half = half, .position = position,
	};
	skb->mark = 0;
	if (!(is_ipv6 ? frame_read_ipv6(skb, &context.frame) : frame_read_ipv4(skb, &context.frame))) {
		leave(running);
		return TC_ACT_SHOT;
	}
	bpf_set_hash_invalid(skb);
	context.bytes = skb->len - sizeof(struct ethhdr);
	if (skb->gso_size)
		context.bytes = skb->gso_size + headers_of(is_ipv6) - sizeof(struct ethhdr);
	context.budget = SLICE;
	bpf_loop(control->lanes[half], one_lane, &context, 0);
	if (context.is_more) {
		bpf_skb_load_bytes(skb, ports_at(is_ipv6), &running->ports, sizeof running->ports);
		if (!again(skb, number, context.position)) {
			context.budget = ALL;
			context.is_more = 0;
			bpf_loop(control->lanes[half], one_lane, &context, 0);
		}
	}
	__sync_fetch_and_add(&heard->clones, context.clones);
	__sync_fetch_and_add(&heard->refused, context.refused);
	if (!context.is_more) {
		__sync_fetch_and_add(&running->packets[half], context.frame.packets);
		leave(running);
	}
	return TC_ACT_SHOT;
}

SEC("classifier")
int relay(struct __sk_buff *skb)
{
	__u32 zero = 0, is_ipv6 = 0, ports = 0, mark = skb->mark;
	struct heard *heard = bpf_map_lookup_elem(&heards, &zero);
	struct control *control = bpf_map_lookup_elem(&controls, &zero);
	struct running *running = bpf_map_lookup_elem(&runnings, &zero);
	if (!heard || !control || !running)
		return TC_ACT_UNSPEC;
	_Bool is_new = mark >> 25 != MARK;
	__u32 number = mark >> 17 & 255, position = mark & 0x1ffff;
	__u64 now_ns = bpf_ktime_get_ns();
	if (!is_new && position) {
		is_ipv6 = skb->protocol == bpf_htons(ETH_P_IPV6);
		bpf_skb_load_bytes(skb, ports_at(is_ipv6), &ports, sizeof ports);
		if (number != (running->head & 255) || ports != running->ports)
			return TC_ACT_UNSPEC;
		running->at_ns = now_ns;
		return go(skb, number, position);
	}
	__be32 from[4] = {};
	__be16 port = 0;
	if (!is_ours(skb, from, &port, &is_ipv6))
		return TC_ACT_UNSPEC;
	if (is_new && is_next_ones(control, running))
		return TC_ACT_UNSPEC;
	if (is_new) {
		if (!hear(heard, skb, from, port, is_ipv6, now_ns))
			return TC_ACT_SHOT;
		if (running->head == running->tail)
			running->at_ns = now_ns;
		if (running->tail - running->head >= WAITING_MAX && !is_lost(running, now_ns)) {
			overrun(skb, control, running, heard);
			return TC_ACT_SHOT;
		}
		number = __sync_fetch_and_add(&running->tail, 1);
	}
	__u32 ahead = number - running->head;
	if (!is_new) {
		ahead &= 255;
		if (ahead >= WAITING_MAX)
			return TC_ACT_SHOT;
	}
	if (ahead && is_lost(running, now_ns)) {
		running->at_ns = now_ns;
		__sync_fetch_and_add(&running->head, ahead);
		ahead = 0;
	}
	if (ahead) {
		if (!again(skb, number, 0)) {
			overrun(skb, control, running, heard);
			running->skipped[number & 255] = 1;
			if (((running->head ^ number) & 255) == 0) {
				running->skipped[number & 255] = 0;
				leave(running);
			}
		}
		return TC_ACT_SHOT;
	}
	running->at_ns = now_ns;
	enter(control, running);
	return go(skb, number, 0);
}

char _license[] SEC("license") = "Dual MIT/GPL";
