// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Software slicing: what one socket sends is dropped at a point of its way, so that the time to there can be
// told from the time of the whole. One of the programs is attached at a time.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// Of the socket; set by the loader.
const volatile __u64 COOKIE = 0;

__u64 dropped = 0;

SEC("cgroup/sendmsg4")
int socket_layer(struct bpf_sock_addr *ctx)
{
	if (bpf_get_socket_cookie(ctx) != COOKIE)
		return 1;
	dropped++;
	return 0;
}

SEC("cgroup_skb/egress")
int after_ip(struct __sk_buff *skb)
{
	if (bpf_get_socket_cookie(skb) != COOKIE)
		return 1;
	dropped++;
	return 0;
}

// As if it had been sent: who hears of a drop keeps later fragments back, and counts it.
SEC("classifier")
int before_device(struct __sk_buff *skb)
{
	if (!skb->sk || bpf_get_socket_cookie(skb) != COOKIE)
		return TC_ACT_UNSPEC;
	dropped++;
	return TC_ACT_STOLEN;
}

// Clones that another program at the device has made have no socket.
SEC("classifier")
int clones(struct __sk_buff *skb)
{
	if (skb->sk || skb->protocol != bpf_htons(ETH_P_IP))
		return TC_ACT_UNSPEC;
	dropped++;
	return TC_ACT_STOLEN;
}

char _license[] SEC("license") = "Dual MIT/GPL";
