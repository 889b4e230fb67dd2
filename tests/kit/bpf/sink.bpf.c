// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The counting sink: a tc-ingress program that counts UDP per destination port and then drops it.
//
// It drops before local delivery, because delivery would copy zero-copy data and charge the copy to
// the sender. A train (gso_segs > 1) is seen whole here, as the sender's stack built it, so its packets
// count as gso_segs; only the RTP header of its first packet is read. Everything that is not UDP to the
// configured ports passes untouched; and where others use the device, too (CHOSEN), all that was not sent by a
// named sender to a port that somebody has opened.
//
// The RTP header is payload, which zero-copy senders never touch: reading it fetches a line from memory
// and charges the sender for it, as no network card would. So an experiment looks into every so many
// socket buffers only. Between two looks packets are counted on, so that the next look tells if one is
// missing.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define LATENESS_FLOOR_NS 50000000 /* the histogram begins this much early */
#define LATENESS_STEP_NS 100000
#define LATENESS_STEPS 5000 /* up to 450 ms late */

#define WARM_UP_NS 1000000000ULL /* of tests/kit/src/playout.rs, as are the following */
#define PLAYOUT_SLOTS 96
#define PLAYOUT_UNIT_NS 250000
#define PLAYOUT_GROUPS_MAX 16

#define WINDOW 64 /* how far behind the newest a number is told from one seen before */
#define SENDERS_MAX 64

// Set by the loader before the program is verified.
const volatile __u32 PORT_FIRST = 0;
const volatile __u32 PORT_COUNT = 0;
const volatile __u32 VERDICT = TC_ACT_SHOT;
const volatile __u32 LOOK_EVERY = 1; /* socket buffers of a port */
const volatile __u32 CHOSEN = 0; /* whether ports are opened and senders are named */
const volatile __u32 BY_CLOCK = 0; /* timestamps are CLOCK_MONOTONIC's: lateness needs no first packet */
const volatile __u32 PLAYOUT = 0; /* whether players are followed */
const volatile __u64 BURST_GAP_NS = 0; /* what follows within this is one burst; 0: nobody asks */

// One destination port. Mirrored by `PortState` in tests/kit/src/sink/mod.rs.
struct port_state {
	// Not per CPU: first arrival and next sequence belong to the port, whichever CPU it lands on.
	struct bpf_spin_lock lock;
	__u16 sequence_next;
	__u16 looks_in; /* socket buffers */
	__u32 is_open; /* where ports are opened */
	__u32 clock_hz; /* of its RTP timestamps; 0: 90 kHz */
	// What every socket buffer changes ends with train_packets_max: together, for the cache's sake.
	__u64 packets;
	__u64 bytes; /* of UDP payload */
	__u64 skbs;
	__u64 trains;
	__u64 train_packets_max;
	__u64 rtp_packets;
	__u64 sequence_missing;
	__u64 sequence_repeated;
	__u64 sequence_reordered; /* of both */
	__u64 arrival_ns_first;
	__u64 arrival_ns_last;
	__u64 rtp_arrival_ns_first; /* lateness is measured from here */
	__s64 lateness_ns_min;
	__s64 lateness_ns_max;
	__u32 timestamp_first;
	__u32 timestamp; /* of the last that was looked at */
	__s64 ticks; /* from the first to that: 32 bits of 90 kHz last for 6 h 37 min in one direction */
	__u64 seen; /* bit i: the number i + 1 before sequence_next has come */
	__u64 burst_packets_max;
	__u64 burst_ns_last;
	__u32 burst_packets; /* of the burst that goes on */
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader says how many ports */
	__type(key, __u32);
	__type(value, struct port_state);
} ports SEC(".maps");

// What a player at one port would have had to buffer. Mirrored by `Playout` in tests/kit/src/playout.rs, which
// says what each is. Its port's lock is held while it is written.
struct playout {
	__u64 arrival_ns_first;
	__s64 base_ns;
	__s64 latest_ns;
	__s64 warm_up_ns_max;
	__s64 risen_ns_max;
	__s64 late_ns_max;
	__u64 step_ns_max;
	__u64 packets_first;
	__u64 packets_last;
	__u64 starved_ns_max;
	__u64 missing;
	__s64 ticks;
	__s64 ticks_max;
	__u32 timestamp;
	__u32 clock_hz;
	__u32 slots[PLAYOUT_SLOTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* one for each port, where somebody asks */
	__type(key, __u32);
	__type(value, struct playout);
} playouts SEC(".maps");

// Packets by lateness: one slot under the range, the steps, one slot over it. Per CPU; programs here run
// with bottom halves off.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LATENESS_STEPS + 2);
	__type(key, __u32);
	__type(value, __u64);
} lateness SEC(".maps");

// An IPv6 address, or an IPv4 one as IPv6 has it (::ffff:a.b.c.d).
struct address {
	__be32 words[4];
};

// Whose packets are counted, where they are named; behind the last there are zeros.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SENDERS_MAX);
	__type(key, __u32);
	__type(value, struct address);
} senders SEC(".maps");

struct rtp {
	__u8 version;
	__u8 kind;
	__be16 sequence;
	__be32 timestamp;
};

// The UDP header, or 0 when the skb is not whole UDP over IPv4 or IPv6. It is in the linear part: a UDP
// socket builds no other.
static __always_inline struct udphdr *udp_header(struct __sk_buff *skb)
{
	void *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = (void *)(long)skb->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct ipv6hdr *ipv6 = (void *)(eth + 1);
	struct udphdr *udp;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		// Later fragments carry no ports; see later_fragment_bytes.
		if ((void *)(ip + 1) > end || ip->protocol != IPPROTO_UDP ||
		    ip->frag_off & bpf_htons(0x1fff))
			return 0;
		udp = (void *)ip + ip->ihl * 4;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if ((void *)(ipv6 + 1) > end || ipv6->nexthdr != IPPROTO_UDP)
			return 0;
		udp = (void *)(ipv6 + 1);
	} else {
		return 0;
	}
	return (void *)(udp + 1) > end ? 0 : udp;
}

// Bytes of a fragment of a UDP datagram over IPv4 that is not its first, which is counted as the packet; 0 for
// anything else.
static __always_inline __u32 later_fragment_bytes(struct __sk_buff *skb)
{
	void *end = (void *)(long)skb->data_end;
	struct iphdr *ip = (void *)((struct ethhdr *)(long)skb->data + 1);

	if (skb->protocol != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end ||
	    ip->protocol != IPPROTO_UDP || !(ip->frag_off & bpf_htons(0x1fff)))
		return 0;
	return skb->len - sizeof(struct ethhdr) - ip->ihl * 4;
}

// Whether a named sender has sent this, of IPv4 or IPv6.
static __always_inline _Bool is_from_sender(struct __sk_buff *skb)
{
	void *end = (void *)(long)skb->data_end;
	struct iphdr *ip = (void *)((struct ethhdr *)(long)skb->data + 1);
	struct ipv6hdr *ipv6 = (void *)ip;
	struct address from = {};

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if ((void *)(ip + 1) > end)
			return 0;
		from.words[2] = bpf_htonl(0xffff);
		from.words[3] = ip->saddr;
	} else {
		if ((void *)(ipv6 + 1) > end)
			return 0;
		__builtin_memcpy(&from, &ipv6->saddr, sizeof from);
	}
	for (__u32 i = 0; i < SENDERS_MAX; i++) {
		// Its place is looked up by a copy: the loop is bounded as long as i stays in a register.
		__u32 place = i;
		struct address *sender = bpf_map_lookup_elem(&senders, &place);
		if (!sender)
			return 0;
		__be32 is_named = sender->words[0] | sender->words[1] | sender->words[2] |
				  sender->words[3];
		if (!is_named)
			return 0;
		if (sender->words[3] == from.words[3] && sender->words[2] == from.words[2] &&
		    sender->words[1] == from.words[1] && sender->words[0] == from.words[0])
			return 1;
	}
	return 0;
}

// Up to 57 hours of 90 kHz.
static __always_inline __s64 ticks_to_ns(__s64 ticks, __u32 clock_hz)
{
	// BPF has no signed division before instruction set v4.
	__u64 distance = ticks < 0 ? (__u64)-ticks : (__u64)ticks;
	__u64 ns = clock_hz ? distance * 1000000000 / clock_hz : distance * 100000 / 9;
	return ticks < 0 ? -(__s64)ns : (__s64)ns;
}

// Counts packets of which the last is so far behind the newest: they were reordered if none of them has come,
// else they came again. As `Follow::count` of lab/measure/src/load/follow.rs, but for a train as a whole; and
// only where every socket buffer is looked at. Called with the port's lock held.
static __always_inline void count_behind(struct port_state *port, __u32 behind, __u32 packets)
{
	port->sequence_repeated += packets;
	if (LOOK_EVERY > 1 || behind >= WINDOW || packets > WINDOW - behind)
		return;
	__u64 numbers = packets < WINDOW ? (1ULL << packets) - 1 : ~0ULL;
	numbers <<= behind;
	if (port->seen & numbers)
		return;
	port->seen |= numbers;
	port->sequence_reordered += packets;
	// The first of all may have been overtaken: then nobody has missed these yet.
	if (port->sequence_missing < port->sequence_reordered)
		port->sequence_missing = port->sequence_reordered;
}

// Counts packets in front of which so many are missing. Called with the port's lock held.
static __always_inline void count_ahead(struct port_state *port, __u32 missing, __u32 packets)
{
	__u32 ahead = missing + packets;
	port->sequence_missing += missing;
	port->seen = ahead < WINDOW ? port->seen << ahead : 0;
	port->seen |= packets < WINDOW ? (1ULL << packets) - 1 : ~0ULL;
}

// How late the skb is. Called with the port's lock held.
static __always_inline __s64 follow(struct port_state *port, const struct rtp *rtp,
				    __u32 packets, __u64 now_ns)
{
	__u16 sequence = bpf_ntohs(rtp->sequence);
	__u32 timestamp = bpf_ntohl(rtp->timestamp);
	if (port->rtp_packets == 0)
		port->sequence_next = sequence;
	// Never 0 once it was read: the clock counts from boot. User space sets it to 0 where a stream
	// goes on from another place.
	if (port->rtp_arrival_ns_first == 0) {
		port->rtp_arrival_ns_first = now_ns;
		port->timestamp_first = timestamp;
		port->timestamp = timestamp;
		port->ticks = 0;
	}
	port->ticks += (__s32)(timestamp - port->timestamp);
	port->timestamp = timestamp;
	__s16 jump = sequence - port->sequence_next;
	if (jump < 0) {
		count_behind(port, (__u32)(-jump) - packets, packets);
	} else {
		count_ahead(port, jump, packets);
		port->sequence_next = sequence + packets;
	}
	__s64 lateness_ns = (__s64)(now_ns - port->rtp_arrival_ns_first) -
			    ticks_to_ns(port->ticks, port->clock_hz);
	if (BY_CLOCK)
		lateness_ns = ticks_to_ns((__s32)((__u32)(now_ns * 9 / 100000) - timestamp), 0);
	if (port->rtp_packets == 0 || lateness_ns > port->lateness_ns_max)
		port->lateness_ns_max = lateness_ns;
	if (port->rtp_packets == 0 || lateness_ns < port->lateness_ns_min)
		port->lateness_ns_min = lateness_ns;
	port->rtp_packets += packets;
	return lateness_ns;
}

// `slot` of tests/kit/src/playout.rs.
static __always_inline __u32 playout_slot(__s64 late_ns)
{
	__u64 units = late_ns < 0 ? 0 : (__u64)late_ns / PLAYOUT_UNIT_NS;
	if (units < 16)
		return units;
	__u64 left = units;
	__u32 octave = 0;
	if (left >> 32) { octave += 32; left >>= 32; }
	if (left >> 16) { octave += 16; left >>= 16; }
	if (left >> 8) { octave += 8; left >>= 8; }
	if (left >> 4) { octave += 4; left >>= 4; }
	if (left >> 2) { octave += 2; left >>= 2; }
	octave += left >> 1;
	__u32 place = 16 + (octave - 4) * 8 + ((units >> (octave - 3)) & 7);
	return place < PLAYOUT_SLOTS ? place : PLAYOUT_SLOTS - 1;
}

// `Playout::train` of tests/kit/src/playout.rs, statement for statement. Called with the port's lock held.
static __always_inline void follow_playout(struct playout *it, __u32 first, __u32 last,
					   __u32 clock_hz, __u32 packets, __u64 packets_before,
					   __u64 now_ns)
{
	if (it->arrival_ns_first == 0) {
		it->arrival_ns_first = now_ns;
		it->base_ns = 0x7fffffffffffffffLL;
		it->latest_ns = -0x7fffffffffffffffLL - 1;
		it->ticks = 0;
		it->ticks_max = 0;
		it->timestamp = first;
		it->packets_first = packets_before;
		it->clock_hz = clock_hz;
	}
	__u64 since_ns = now_ns - it->arrival_ns_first;
	__s64 ticks = it->ticks + (__s32)(first - it->timestamp);
	it->ticks = ticks;
	it->timestamp = first;
	__s64 of_first_ns = (__s64)since_ns - ticks_to_ns(ticks, clock_hz);
	__s64 of_last_ns = (__s64)since_ns - ticks_to_ns(ticks + (__s32)(last - first), clock_hz);
	__s64 ahead = ticks - it->ticks_max;
	if (ahead > 0) {
		__u64 step_ns = ticks_to_ns(ahead, clock_hz);
		if (step_ns > it->step_ns_max)
			it->step_ns_max = step_ns;
		it->ticks_max = ticks;
	}
	it->packets_last = packets_before;
	if (since_ns < WARM_UP_NS) {
		if (of_first_ns < it->base_ns)
			it->base_ns = of_first_ns;
		if (of_first_ns > it->latest_ns)
			it->latest_ns = of_first_ns;
		if (of_first_ns - it->base_ns > it->risen_ns_max)
			it->risen_ns_max = of_first_ns - it->base_ns;
		if (of_last_ns < it->base_ns)
			it->base_ns = of_last_ns;
		if (of_last_ns > it->latest_ns)
			it->latest_ns = of_last_ns;
		if (of_last_ns - it->base_ns > it->risen_ns_max)
			it->risen_ns_max = of_last_ns - it->base_ns;
		return;
	}
	__s64 spread_ns = of_first_ns - of_last_ns;
	__u64 distance_ns = spread_ns < 0 ? -spread_ns : spread_ns;
	__u32 in_group = (packets + PLAYOUT_GROUPS_MAX - 1) / PLAYOUT_GROUPS_MAX;
	for (__u32 group = 0; group < PLAYOUT_GROUPS_MAX; group++) {
		__u32 before = group * in_group;
		if (before >= packets)
			break;
		__u64 part_ns = distance_ns * before / (packets > 1 ? packets - 1 : 1);
		__s64 late_ns = of_first_ns - (spread_ns < 0 ? -(__s64)part_ns : (__s64)part_ns) -
				it->base_ns;
		if (late_ns > it->late_ns_max)
			it->late_ns_max = late_ns;
		__u32 slot = playout_slot(late_ns);
		if (slot < PLAYOUT_SLOTS)
			it->slots[slot] += packets - before < in_group ? packets - before : in_group;
	}
}

// Counts what came together, in however many socket buffers. Called with the port's lock held.
static __always_inline void follow_burst(struct port_state *port, __u32 packets, __u64 now_ns)
{
	// Signed: two CPUs may have read the clock in one order and come here in the other.
	if ((__s64)(now_ns - port->burst_ns_last) > (__s64)BURST_GAP_NS)
		port->burst_packets = 0;
	port->burst_ns_last = now_ns;
	port->burst_packets += packets;
	if (port->burst_packets > port->burst_packets_max)
		port->burst_packets_max = port->burst_packets;
}

static __always_inline __u32 lateness_slot(__s64 lateness_ns)
{
	__s64 above_ns = lateness_ns + LATENESS_FLOOR_NS;
	if (above_ns < 0)
		return 0;
	__u64 step = (__u64)above_ns / LATENESS_STEP_NS;
	return step < LATENESS_STEPS ? step + 1 : LATENESS_STEPS + 1;
}

SEC("classifier")
int sink(struct __sk_buff *skb)
{
	struct udphdr *udp = udp_header(skb);
	__u32 more = udp ? 0 : later_fragment_bytes(skb);
	if (more) {
		// It names no port: its bytes count at the first.
		__u32 first = 0;
		if (CHOSEN && !is_from_sender(skb))
			return TC_ACT_OK;
		struct port_state *port = bpf_map_lookup_elem(&ports, &first);
		if (!port)
			return TC_ACT_OK;
		bpf_spin_lock(&port->lock);
		port->bytes += more;
		bpf_spin_unlock(&port->lock);
		return VERDICT;
	}
	if (!udp)
		return TC_ACT_OK;
	__u32 payload = (void *)(udp + 1) - (void *)(long)skb->data;
	__u32 index = bpf_ntohs(udp->dest) - PORT_FIRST;
	if (index >= PORT_COUNT)
		return TC_ACT_OK;
	struct port_state *port = bpf_map_lookup_elem(&ports, &index);
	if (!port)
		return TC_ACT_OK;
	if (CHOSEN && !(port->is_open && is_from_sender(skb)))
		return TC_ACT_OK;

	__u32 packets = skb->gso_segs ? skb->gso_segs : 1;
	__u32 bytes = skb->len - payload;
	// Read without the lock: should two CPUs race here, a look comes too often or too late by one.
	_Bool looks = port->looks_in == 0;
	__u64 now_ns = looks || BURST_GAP_NS ? bpf_ktime_get_ns() : 0;
	struct rtp rtp;
	// RTCP shares the ports' range: its packet types are 192 to 223 (RFC 5761, section 4).
	_Bool is_rtp = looks &&
		      !bpf_skb_load_bytes(skb, payload, &rtp, sizeof rtp) &&
		      rtp.version >> 6 == 2 && (rtp.kind < 192 || rtp.kind > 223);
	__s64 lateness_ns = 0;
	struct playout *playout = 0;
	__be32 timestamp_last = is_rtp ? rtp.timestamp : 0;
	if (PLAYOUT && is_rtp) {
		playout = bpf_map_lookup_elem(&playouts, &index);
		// Of a train, when its last packet is due. One that is no whole train keeps that of its first.
		if (packets > 1)
			bpf_skb_load_bytes(skb,
					   payload + (packets - 1) * (skb->gso_size) +
						   __builtin_offsetof(struct rtp, timestamp),
					   &timestamp_last, sizeof timestamp_last);
	}

	bpf_spin_lock(&port->lock);
	if (looks) {
		port->looks_in = LOOK_EVERY - 1;
		if (port->packets == 0)
			port->arrival_ns_first = now_ns;
		port->arrival_ns_last = now_ns;
	}
	if (playout)
		follow_playout(playout, bpf_ntohl(rtp.timestamp), bpf_ntohl(timestamp_last),
			       port->clock_hz ? port->clock_hz : 90000, packets, port->packets,
			       now_ns);
	port->packets += packets;
	port->bytes += bytes;
	port->skbs++;
	port->trains += packets > 1;
	if (packets > port->train_packets_max)
		port->train_packets_max = packets;
	if (BURST_GAP_NS)
		follow_burst(port, packets, now_ns);
	if (is_rtp)
		lateness_ns = follow(port, &rtp, packets, now_ns);
	if (!looks) {
		port->sequence_next += packets;
		if (port->looks_in)
			port->looks_in--;
	}
	bpf_spin_unlock(&port->lock);

	if (is_rtp) {
		__u32 slot = lateness_slot(lateness_ns);
		__u64 *late = bpf_map_lookup_elem(&lateness, &slot);
		if (late)
			*late += packets;
	}
	return VERDICT;
}

char _license[] SEC("license") = "Dual MIT/GPL";
