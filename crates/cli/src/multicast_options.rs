//! What is sent to multicast groups, as options of `onrush serve`.

use std::net::IpAddr;

use anyhow::bail;
use clap::{Args, value_parser};
use onrush_server::multicast::{GroupRange, MulticastConfig};

use crate::values::count;

#[derive(Args, Debug)]
pub(crate) struct MulticastOptions {
    /// Groups that films and channels may be sent to; repeatable [default: none]
    ///
    /// GROUP/PREFIX or GROUP/PREFIX:PORT, as in 239.1.2.0/24:5004 or [ff15::/120]:5004. A client
    /// that asks for multicast is told a group of these: one for a film or channel, whatever the
    /// number of its viewers. The first track is at PORT (5004), each other two above.
    #[arg(long, value_name = "RANGE", hide_short_help = true)]
    multicast: Vec<GroupRange>,

    /// TTL, or hop limit, of what is sent to groups
    ///
    /// 1 stays in the network; routers that forward groups need more.
    #[arg(long, value_name = "N", hide_short_help = true,
          default_value_t = MulticastConfig::default().ttl,
          value_parser = value_parser!(u8).range(1..))]
    multicast_ttl: u8,

    /// An address of this machine that groups are sent from, one a family
    ///
    /// Its interface is the one that they leave by. Without it, it is the address that the client
    /// has spoken to.
    #[arg(long, value_name = "ADDR", hide_short_help = true)]
    multicast_from: Vec<IpAddr>,

    /// A film or channel that is always sent to a group; repeatable
    ///
    /// Its path in URLs: live/NAME for a channel. A film is sent in a loop. DESCRIBE tells the
    /// group. It is sent from the first --multicast-from.
    #[arg(long, value_name = "PATH", hide_short_help = true,
          requires_all = ["multicast", "multicast_from"])]
    multicast_always: Vec<String>,

    /// Groups that are sent to at once; one more: 453
    #[arg(long, value_name = "N", hide_short_help = true,
          default_value_t = MulticastConfig::default().groups_max, value_parser = count)]
    multicast_groups_max: usize,
}

impl MulticastOptions {
    /// The settings.
    pub(crate) fn settings(&self) -> anyhow::Result<MulticastConfig> {
        let mut from = self.multicast_from.iter();
        let is_of_a_link =
            |ip: &&IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if let Some(ip) = from.find(is_of_a_link) {
            bail!(
                "--multicast-from {ip}: several interfaces may have a link-local address; name \
                 another one of the interface"
            );
        }
        if let (Some(path), Some(&ip)) =
            (self.multicast_always.first(), self.multicast_from.first())
            && !self.multicast.iter().any(|range| range.is_of_family(ip))
        {
            bail!(
                "--multicast-always {path}: it is sent from the first --multicast-from, {ip}, and \
                 no --multicast is of its IP version; add a range, or name another address first"
            );
        }
        Ok(MulticastConfig {
            ranges: self.multicast.clone(),
            ttl: self.multicast_ttl,
            from: self.multicast_from.clone(),
            always: self.multicast_always.clone(),
            groups_max: self.multicast_groups_max,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        multicast: MulticastOptions,
    }

    fn settings(options: &str) -> anyhow::Result<MulticastConfig> {
        let options = ["onrush"].into_iter().chain(options.split_whitespace());
        Program::try_parse_from(options)?.multicast.settings()
    }

    #[test]
    fn options_of_multicast_become_settings() {
        let none = settings("").unwrap();
        assert!(none.ranges.is_empty() && none.ttl == 1 && none.groups_max == 16);
        let options = "--multicast 239.1.2.0/24:6000 --multicast [ff15::/120] --multicast-ttl 7 \
            --multicast-from 192.0.2.1 --multicast-always live/tv --multicast-groups-max 2";
        let set = settings(options).unwrap();
        assert_eq!((set.ranges.len(), set.ranges[0].port), (2, 6000));
        assert_eq!((set.ttl, set.groups_max), (7, 2));
        assert_eq!(
            (set.from.len(), set.always.join(" ")),
            (1, "live/tv".to_owned())
        );
        for wrong in [
            "--multicast 192.0.2.0/24",
            "--multicast-ttl 0",
            "--multicast 239.1.2.3 --multicast-always live/tv",
        ] {
            assert!(settings(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_could_never_be_sent_is_refused_at_the_start() {
        let always = "--multicast-always film.ts --multicast [ff15::/120]";
        for (options, said) in [
            (format!("{always} --multicast-from 192.0.2.1"), "192.0.2.1"),
            (
                format!("{always} --multicast-from 192.0.2.1 --multicast-from 2001:db8::1"),
                "film.ts",
            ),
            ("--multicast-from fe80::1".to_owned(), "fe80::1"),
        ] {
            let error = settings(&options).unwrap_err().to_string();
            assert!(error.contains(said), "{options}: {error}");
        }
        for options in [
            format!("{always} --multicast-from 2001:db8::1 --multicast-from 192.0.2.1"),
            format!("{always} --multicast 239.1.2.3 --multicast-from 192.0.2.1"),
            "--multicast-from 192.0.2.1".to_owned(),
        ] {
            assert!(settings(&options).is_ok(), "{options}");
        }
    }
}
