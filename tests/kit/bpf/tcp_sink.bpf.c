// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The counting sink of TCP: a tc-ingress program that counts the data of named connections and then drops it.
//
// It drops before local delivery, because delivery would copy zero-copy data. Nobody would acknowledge what is
// dropped, so tests/kit/src/tcp_sink.rs does, by what is written down here. Data that does not follow what came
// before is dropped uncounted: it is sent again.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// A connection. Mirrored by `State` in tests/kit/src/tcp_sink.rs.
struct connection {
	__u64 bytes; /* of payload, each counted once */
	__u64 skbs;
	__u64 segments;
	__u32 next; /* the sequence number that is to come */
	__u32 acknowledged; /* of the client's bytes */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32); /* the client's port */
	__type(value, struct connection);
} connections SEC(".maps");

SEC("classifier")
int tcp_sink(struct __sk_buff *skb)
{
	void *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = (void *)(long)skb->data;
	struct iphdr *ip = (void *)(eth + 1);

	if (skb->protocol != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end ||
	    ip->protocol != IPPROTO_TCP || ip->ihl != 5)
		return TC_ACT_OK;
	struct tcphdr *tcp = (void *)(ip + 1);
	if ((void *)(tcp + 1) > end || tcp->fin || tcp->rst || tcp->syn)
		return TC_ACT_OK;
	__u32 heads = sizeof(*eth) + sizeof(*ip) + tcp->doff * 4;
	if (skb->len <= heads)
		return TC_ACT_OK;
	__u32 port = bpf_ntohs(tcp->dest);
	struct connection *it = bpf_map_lookup_elem(&connections, &port);
	if (!it)
		return TC_ACT_OK;
	// A connection's packets come one behind the other: its sender holds the socket's lock.
	__u32 begin = bpf_ntohl(tcp->seq), past = begin + (skb->len - heads);
	if (it->skbs == 0)
		it->next = begin;
	__s32 gap = (__s32)(begin - it->next), more = (__s32)(past - it->next);
	if (gap <= 0 && more > 0) {
		it->bytes += more;
		it->skbs++;
		it->segments += skb->gso_segs ? skb->gso_segs : 1;
		it->acknowledged = bpf_ntohl(tcp->ack_seq);
		it->next = past;
	}
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual MIT/GPL";
