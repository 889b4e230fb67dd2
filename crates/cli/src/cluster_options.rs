//! The options of `onrush serve` about the cluster that it is a node of.

use std::fs;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use onrush_server::config::ClusterConfig;
use onrush_wire::route::{is_node_name, relay};
use url::Url;

use crate::units::{Rate, Time, within};

#[derive(Args, Debug)]
pub(crate) struct ClusterOptions {
    /// The cluster that this server is a node of
    ///
    /// A name: letters, digits, - and _. Nodes of one cluster serve the same files, find each other
    /// in NATS and send each viewer to the node that has its film in memory: 302 by RTSP, 307 by
    /// HTTP. docs/cluster.md tells how.
    #[arg(long, value_name = "NAME", hide_short_help = true, value_parser = cluster_name,
          requires_all = ["cluster_nats", "cluster_host"])]
    cluster: Option<String>,

    /// The name of this node [default: the host's]
    ///
    /// No other node has it. Letters, digits, -, _ and dots.
    #[arg(long, value_name = "NAME", hide_short_help = true, value_parser = node_name,
          requires = "cluster")]
    cluster_node: Option<String>,

    /// A server of NATS, with JetStream; repeatable
    ///
    /// As in nats://192.0.2.9:4222 or tls://nats.example. One of them that answers is enough. No
    /// password stands here: see --cluster-credentials.
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url, hide_short_help = true,
          value_parser = nats_url, requires = "cluster")]
    cluster_nats: Vec<String>,

    /// The host by which viewers reach this node
    ///
    /// A name or an address; the ports are the first that it listens at, not on loopback.
    #[arg(long, value_name = "HOST", hide_short_help = true, value_parser = host,
          requires = "cluster")]
    cluster_host: Option<String>,

    /// File of credentials for NATS
    ///
    /// As `nsc generate creds` writes it. What is secret of it stays here: it signs.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true,
          requires = "cluster")]
    cluster_credentials: Option<PathBuf>,

    /// How long a node is believed to be there that says nothing
    ///
    /// What the first node says counts: it makes the bucket. Nodes write three times in that time.
    #[arg(long, value_name = "TIME", hide_short_help = true, default_value_t = Time(LIFE),
          value_parser = within(Time(LIFE_MIN), Time(LIFE_MAX)), requires = "cluster")]
    cluster_life: Time,

    /// How many servers of NATS keep what nodes tell [default: 3 if three are named, else 1]
    ///
    /// With three of them one may go. What the first node says counts: it makes the buckets.
    #[arg(long, value_name = "N", hide_short_help = true, requires = "cluster",
          value_parser = clap::value_parser!(u8).range(1..=i64::from(REPLICAS_MAX)))]
    cluster_replicas: Option<u8>,

    /// What this node can play [default: 10Gbit/s a processor that sends]
    ///
    /// Films are given to nodes by it: say what its network carries.
    #[arg(long, value_name = "RATE", hide_short_help = true, requires = "cluster",
          value_parser = within(Rate(CAPACITY_MIN), Rate(CAPACITY_MAX)))]
    cluster_capacity: Option<Rate>,

    /// How many nodes may take one channel from this node at once
    ///
    /// Whoever else asks is sent on to one of these, so that a channel reaches many nodes by a
    /// tree. More make it flatter and cost this node as much more of its network.
    #[arg(long, value_name = "N", hide_short_help = true, requires = "cluster",
          default_value_t = relay::PULLS_DEFAULT,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(relay::PULLS_MAX)))]
    cluster_pulls_max: u16,
}

/// How a node finds its cluster.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "cluster"),
    allow(dead_code, reason = "read by what speaks with NATS")
)]
pub(crate) struct Discovery {
    pub(crate) servers: Vec<String>,
    pub(crate) credentials: Option<PathBuf>,
    pub(crate) time_to_live: Duration,
    pub(crate) replicas: usize,
}

impl ClusterOptions {
    /// The settings of the server's part.
    ///
    /// # Errors
    ///
    /// If this program has no part in clusters, or the host no name.
    pub(crate) fn settings(&self) -> anyhow::Result<Option<ClusterConfig>> {
        let (Some(name), Some(host)) = (&self.cluster, &self.cluster_host) else {
            return Ok(None);
        };
        if cfg!(not(feature = "cluster")) {
            bail!(
                "this onrush is built without clusters: build it with `cargo build --release -p \
                 onrush --features cluster`, or install the Debian package"
            );
        }
        let node = match &self.cluster_node {
            Some(node) => node.clone(),
            None => host_name()?,
        };
        Ok(Some(ClusterConfig {
            name: name.clone(),
            node,
            host: host.clone(),
            capacity_bps: self.cluster_capacity.map(|rate| rate.0),
            pulls_max: self.cluster_pulls_max.into(),
        }))
    }

    /// How it finds the others.
    pub(crate) fn discovery(&self) -> Discovery {
        Discovery {
            servers: self.cluster_nats.clone(),
            credentials: self.cluster_credentials.clone(),
            time_to_live: self.cluster_life.0,
            replicas: match self.cluster_replicas {
                Some(replicas) => usize::from(replicas),
                None if self.cluster_nats.len() >= REPLICAS => REPLICAS,
                None => 1,
            },
        }
    }
}

fn host_name() -> anyhow::Result<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.context("cannot find this host's name: say --cluster-node NAME")?;
    let name = name.trim();
    if !is_node_name(name) {
        bail!("this host is called {name:?}, which no node can be: say --cluster-node NAME");
    }
    Ok(name.to_owned())
}

fn cluster_name(text: &str) -> Result<String, String> {
    match is_node_name(text) && !text.contains('.') {
        true => Ok(text.to_owned()),
        false => Err("write up to 64 letters, digits, - and _, as in films".to_owned()),
    }
}

fn node_name(text: &str) -> Result<String, String> {
    match is_node_name(text) {
        true => Ok(text.to_owned()),
        false => Err("write up to 64 letters, digits, -, _ and dots, as in node-1".to_owned()),
    }
}

fn nats_url(text: &str) -> Result<String, String> {
    let hint = "write nats://HOST:PORT or tls://HOST:PORT, as in nats://192.0.2.9:4222";
    let url = Url::parse(text).map_err(|error| format!("{error}; {hint}"))?;
    let has_login = !url.username().is_empty() || url.password().is_some();
    if has_login {
        return Err("no password stands here: write --cluster-credentials FILE".to_owned());
    }
    let is_plain = url.has_host() && matches!(url.path(), "" | "/") && url.query().is_none();
    match is_plain && matches!(url.scheme(), "nats" | "tls") {
        true => Ok(text.to_owned()),
        false => Err(hint.to_owned()),
    }
}

fn host(text: &str) -> Result<String, String> {
    let hint = "write a name or an address, as in media-1.example, 192.0.2.7 or 2001:db8::7";
    // As it stands in URLs; Kubernetes gives it without brackets.
    let host = match text.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{text}]"),
        Err(_) => text.to_owned(),
    };
    let target = format!("rtsp://{host}:1/");
    let is_host = target.parse::<onrush_wire::rtsp::RedirectTarget>().is_ok();
    match is_host && !host.is_empty() {
        true => Ok(host),
        false => Err(hint.to_owned()),
    }
}

const LIFE: Duration = Duration::from_secs(15);
const LIFE_MIN: Duration = Duration::from_secs(1);
const LIFE_MAX: Duration = Duration::from_secs(3600);
const REPLICAS: usize = 3;
const REPLICAS_MAX: u8 = 5;
const CAPACITY_MIN: u64 = 1_000_000;
const CAPACITY_MAX: u64 = 100_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_urls_and_hosts_are_told_from_others() {
        for url in [
            "nats://192.0.2.9:4222",
            "tls://nats.example",
            "nats://[::1]:4222/",
        ] {
            assert_eq!(nats_url(url).as_deref(), Ok(url));
        }
        for url in [
            "192.0.2.9",
            "http://a",
            "nats://a/b",
            "nats://",
            "nats://a?x",
        ] {
            assert!(
                nats_url(url).unwrap_err().contains("nats://HOST:PORT"),
                "{url}"
            );
        }
        let refused = nats_url("nats://u:secret@a:4222").unwrap_err();
        assert!(refused.contains("--cluster-credentials") && !refused.contains("secret"));
        for name in ["media-1.example", "192.0.2.7", "[2001:db8::7]"] {
            assert_eq!(host(name).as_deref(), Ok(name));
        }
        assert_eq!(host("2001:db8::7").as_deref(), Ok("[2001:db8::7]"));
        for name in ["", "a:1", "a/b", "2001:db8::7:x", "[[::1]]", "a b", "u@a"] {
            assert!(host(name).unwrap_err().contains("as in"), "{name}");
        }
        assert!(cluster_name("films").is_ok() && cluster_name("a.b").is_err());
        assert!(node_name("a.b").is_ok() && node_name("a b").is_err());
    }
}
